"""docs/ipc.md says what src/beanfield/ipc/frames.py says: every frame with its code, every flag and error."""

import ast
import re

from tests.tidy.rules import ROOT

DOCUMENT = (ROOT / "docs" / "ipc.md").read_text()


def numbers_in_frames() -> dict[str, int]:
    """NAME: Final = number, of frames.py, in its order."""
    found = {}
    for node in ast.parse((ROOT / "src/beanfield/ipc/frames.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            assert isinstance(node.target, ast.Name) and isinstance(node.value.value, int)
            found[node.target.id] = node.value.value
    return found


def test_every_frame_is_drawn_with_its_code_and_no_other() -> None:
    codes = {
        name: number
        for name, number in numbers_in_frames().items()
        if not name.endswith("_BYTES") and not name.startswith(("FLAG_", "ERROR_", "ROLE_"))
    }
    drawn = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", DOCUMENT, re.MULTILINE)}
    assert drawn == codes


def test_every_flag_is_named_with_its_number() -> None:
    for name, number in numbers_in_frames().items():
        if name.startswith("FLAG_"):
            assert re.search(rf"{name} \({number},", DOCUMENT), name


def test_every_error_has_its_code() -> None:
    line = next(line for line in DOCUMENT.splitlines() if line.startswith("Codes of ERROR:"))
    errors = [number for name, number in numbers_in_frames().items() if name.startswith("ERROR_")]
    assert [int(code) for code in re.findall(r"\d+", line)] == errors
