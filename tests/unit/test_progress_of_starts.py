"""What the operator and the service manager hear of owners that read their logs."""

import socket
from pathlib import Path

import pytest

from beanfield.ipc.frames import ROLE_OWNER
from beanfield.supervisor.progress import LOG_NS, Progress


def test_each_report_asks_for_patience_and_the_log_gets_one_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(5.0)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    progress = Progress()
    for at_ns, text in ((0, "reads 1 %"), (LOG_NS // 2, "reads 2 %"), (LOG_NS, "reads 3 %")):
        progress.told(ROLE_OWNER, 3, text, at_ns)
        assert manager.recv(1000).decode().splitlines()[1] == f"STATUS=owner 3 {text}"
    progress.over()
    assert manager.recv(1000) == b"STATUS=serving"
    manager.close()
    said = capsys.readouterr().err
    assert "owner 3: reads 1 %" in said and "reads 2 %" not in said and "owner 3: reads 3 %" in said
