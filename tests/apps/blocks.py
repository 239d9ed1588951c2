"""The Python of the documents: blocks with the language tag `python run` are complete and must run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATHS = re.compile(r'((?:checkpoint|path)=|\.(?:parquet|json)\(|start\(spark, )"(\w[^"]*)"')
RUN = re.compile(r"^```python run\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    """The blocks of a page that run: line of the first statement, and the text."""
    text = page.read_text()
    return [(text[: match.start(1)].count("\n"), match[1]) for match in RUN.finditer(text)]


def run_page(page: Path, folder: Path, **names: Any) -> dict[str, Any]:
    """Run the blocks of a page one after the other, in one namespace; errors show the page's own lines.

    Relative paths are taken from `folder`: a chdir would move Python, but not the JVM of the shared session.
    """
    space = {"__name__": f"page_{page.stem.replace('-', '_')}", **names}
    for line, text in blocks(page):
        placed = PATHS.sub(rf'\1"{folder}/\2"', text)
        exec(compile("\n" * line + placed, str(page), "exec"), space)
    return space
