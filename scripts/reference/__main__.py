"""`make reference`: write the generated pages and tables of the docs."""

from __future__ import annotations

from scripts.reference.pages import PAGES


def main() -> None:
    for path, render in PAGES.items():
        path.write_text(render(), encoding="utf-8")
        print(path.name)


main()
