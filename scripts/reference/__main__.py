"""`make reference`: write the generated pages of docs/reference."""

from __future__ import annotations

from scripts.reference.pages import PAGES


def main() -> None:
    for path, render in PAGES.items():
        path.write_text(render(), encoding="utf-8")
        print(path.name)


main()
