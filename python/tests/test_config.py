"""Programs find the edge that `app.toml` names."""

from pathlib import Path

import pytest

import mez


def test_programs_read_the_settings_of_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a notebook finds its edge; a file with a fault is named with its line, and nothing is guessed."""
    settings = tmp_path / "app.toml"
    monkeypatch.setenv("MEZ_APP_CONFIG", str(settings))
    with mez.edge() as edge:
        settings.write_text(f'role = "app"\nedge = ["unix://{edge.socket}"]\n')
        assert mez.cameras() == []
        settings.write_text('role = "app"\negde = ["edge.local"]\n')
        with pytest.raises(mez.ArgumentError, match=r"app\.toml:2: egde: .*did you mean edge\?"):
            mez.cameras()
        # What is said in the program goes before the file.
        assert mez.cameras(edge=f"unix://{edge.socket}") == []


def test_programs_find_the_socket_that_the_edge_s_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody repeats where the edge listens: its own file says so, and a variable goes before it."""
    settings = tmp_path / "edge.toml"
    for name in ("MEZ_EDGE", "MEZ_EDGE_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEZ_APP_CONFIG", "off")
    monkeypatch.setenv("MEZ_EDGE_CONFIG", str(settings))
    with mez.edge() as edge:
        settings.write_text(f'role = "edge"\nsocket = "{edge.socket}"\n')
        assert mez.cameras() == []
        settings.write_text('role = "edge"\nsokcet = "e.sock"\n')
        with pytest.raises(mez.ArgumentError, match=r"edge\.toml:2: sokcet: .*did you mean socket\?"):
            mez.cameras()
        settings.write_text('role = "edge"\nsocket = "/nowhere/e.sock"\n')
        monkeypatch.setenv("MEZ_EDGE_SOCKET", str(edge.socket))
        assert mez.cameras() == []
