"""The picture of the packages is drawn from the imports, and is current."""

from __future__ import annotations

import re
from pathlib import Path

from docs.import_graph import PICTURE, TREES, draw, graph_of, levels, reduced


def test_the_picture_is_what_the_imports_are() -> None:
    assert PICTURE.read_text() == draw(graph_of(TREES)), "the imports have changed: make graph"


def tree(folder: Path, **modules: str) -> dict[str, Path]:
    root = folder / "slackwater"
    for name, text in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (root / "__init__.py").touch()
    return {"slackwater": root}


def test_imports_at_the_top_and_in_functions_count_and_those_of_types_do_not(
    tmp_path: Path,
) -> None:
    trees = tree(
        tmp_path,
        model__values="",
        core__step="from slackwater.model import values\n",
        cli__app="import slackwater.core.step\n"
        "if TYPE_CHECKING:\n    from slackwater.types import hints\n"
        "def run():\n    from slackwater.model.values import Value\n",
        types__hints="import json\n",
    )

    assert graph_of(trees) == {
        "slackwater.cli": {"slackwater.core", "slackwater.model"},
        "slackwater.core": {"slackwater.model"},
        "slackwater.model": set(),
        "slackwater.types": set(),
    }


def test_a_folder_that_only_holds_packages_is_no_box_and_what_a_package_holds_is_in_its_box(
    tmp_path: Path,
) -> None:
    trees = tree(
        tmp_path,
        protocols__dpc__sunion__core="",
        protocols__flux__pair="from slackwater.protocols.dpc.sunion.core import Core\n",
    )
    (trees["slackwater"] / "protocols/__init__.py").touch()
    (trees["slackwater"] / "protocols/dpc/states.py").touch()
    (trees["slackwater"] / "protocols/dpc/__init__.py").touch()

    assert graph_of(trees) == {
        "slackwater.protocols.flux": {"slackwater.protocols.dpc"},
        "slackwater.protocols.dpc": set(),
    }


def test_a_package_stands_above_all_that_it_imports() -> None:
    graph = {"cli": {"core", "model"}, "core": {"model"}, "model": set(), "apart": set()}

    assert levels(graph) == {"cli": 2, "core": 1, "model": 0, "apart": 0}


def test_packages_of_a_circle_share_a_floor() -> None:
    graph = {"top": {"a"}, "a": {"b"}, "b": {"a", "low"}, "low": set()}

    assert levels(graph) == {"top": 2, "a": 1, "b": 1, "low": 0}
    assert reduced(graph) == graph


def test_an_arrow_that_a_longer_way_implies_is_not_drawn() -> None:
    graph = {"cli": {"core", "model"}, "core": {"model"}, "model": set()}

    assert reduced(graph) == {"cli": {"core"}, "core": {"model"}, "model": set()}
    assert len(re.findall("<line ", draw(graph))) == 2
