"""Pages of the documentation have working examples and valid links and configurations.

Their `make` targets are valid, too. The examples that run are those after a line `<!-- run -->`.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state.
"""

from __future__ import annotations

import re
import shlex
import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from metastore_assets.config import load_config
from scripts.doc_examples import code_blocks, run_shell
from tests.cli.run_command import run

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

_COMMAND = re.compile(r"""metastore (?:[^'"|<>;&$*?~`\\#]|'[^']*'|"[^"$`\\]*")*(?:#.*)?""")
"""A line that a shell does nothing with but split it into words."""
_STATEMENT = re.compile(r"(?P<file>cat ?>.* ?<<'?END'?\n(?:.*\n)*?END\n)|.*\n")
"""A here-document that becomes a file, or a line."""


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `sales` of the pages, their `metastore.yaml`, and one published version."""
    folder = tmp_path_factory.mktemp("docs")
    days = [date(2024, 1, 1 + row // 50) for row in range(100)]
    rows = pa.table(
        {
            "day": pa.array(days, pa.date32()),
            "shop": [("Lyon", "Oslo", "Bari", "Oslo")[row % 4] for row in range(100)],
            "amount": pa.array([Decimal(row * row) / 100 for row in range(100)], pa.decimal128(12, 2)),
            "note": [f"receipt {row}" for row in range(100)],
        }
    )
    write_deltalake(folder / "lake" / "sales", rows, partition_by=["day"])
    (configuration,) = (code for language, code, _ in code_blocks(REPOSITORY / "README.md") if language == "yaml")
    (folder / "metastore.yaml").write_text(configuration, encoding="utf-8")
    run_shell("metastore refresh sales", folder)
    return folder


def test_the_first_pages_are_short() -> None:
    """README.md and the architecture page are short enough to be read in one sitting."""
    readme, architecture = (
        (REPOSITORY / page).read_text(encoding="utf-8") for page in ("README.md", "docs/explanation/architecture.md")
    )
    assert len(readme.splitlines()) <= 120
    assert len(architecture.split()) <= 2_500


def test_the_pages_are_short_together() -> None:
    """The pages that are not generated have at most 42,000 words.

    They are counted together. An earlier goal of 32,000 words did not include pages that were added later.
    """
    generated_pages = {"command-line.md", "configuration.md", "python-api.md", "real-tables.md"}
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.name not in generated_pages]
    assert sum(len(text.split()) for text in texts) <= 42_000


def run_commands(code: str, folder: Path) -> None:
    """Run a shell script, and fail if a command fails.

    The first lines run one by one, as long as each is a `metastore` command or writes a file from a here-document.
    `metastore` commands among them run in this process, which saves imports. One shell runs the rest of the script.
    """
    end = 0
    for statement in _STATEMENT.finditer(code):
        line = statement[0].rstrip("\n")
        if statement["file"]:
            run_shell(statement[0], folder)
        elif _COMMAND.fullmatch(line):
            result = run(*shlex.split(line, comments=True)[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"
        else:
            break
        end = statement.end()
    if code[end:]:
        run_shell(code[end:], folder)


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_examples_run(
    page: Path, refreshed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples of a page run in order, as a reader would run them.

    They run in a copy of the refreshed table at the same path, because the version records the table's location.
    """
    folder, original = refreshed, tmp_path / "original"
    shutil.move(folder, original)
    shutil.copytree(original, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("METASTORE_CONFIG", raising=False)
    names: dict[str, object] = {}
    try:
        for language, code, runs in code_blocks(page):
            if runs and language == "python":
                exec(compile(code, page.name, "exec"), names)
            elif runs:
                run_commands(code, folder)
    finally:
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)
        shutil.move(original, folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_configurations_are_valid(page: Path, tmp_path: Path) -> None:
    """Every configuration on a page is accepted, and all its keys exist."""
    for language, code, _ in code_blocks(page):
        if language == "yaml":
            file = tmp_path / "metastore.yaml"
            file.write_text(code, encoding="utf-8")
            config = load_config(file)
            assert len(config.tables) + len(config.databases) == len(yaml.safe_load(code)["tables"])


def test_the_demos_configuration_is_valid() -> None:
    """The repository's `metastore.yaml` has the two tables of `make demo`, and a root below ./demo."""
    config = load_config(REPOSITORY / "metastore.yaml")
    assert [table.name for table in config.tables] == ["lineitem", "orders"]
    assert Path(config.root) == REPOSITORY / "demo" / "metastore"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_name_existing_files(page: Path) -> None:
    """A relative link of a page names an existing file."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_make_targets_named_in_the_pages_exist() -> None:
    """`make something` in a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named_targets = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named_targets <= targets


def test_every_page_is_in_the_navigation_and_the_index() -> None:
    """Each page of docs/ is in `nav` of mkdocs.yml and linked from docs/index.md."""
    docs = REPOSITORY / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    nav = set(re.findall(r"\S+\.md$", (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    links = set(re.findall(r"\]\(([^)#]+\.md)", (docs / "index.md").read_text(encoding="utf-8")))
    assert pages == nav == links | {"index.md"}
