"""`mez bridge events`, and `mez bridge check` for the file of a bridge for events."""

from pathlib import Path

from mez._commands import Teller, folder, until_ended
from mez.bridge.events import file
from mez.bridge.events.mqtt import client_of
from mez.bridge.events.run import EventsRun, opened
from mez.bridge.events.webhook import WebhookSender


def run(path: Path, state: Path | None, *, is_json: bool, progress_s: float) -> int:
    """Run a bridge until Ctrl-C, and return the exit status.

    Args:
        path: Its file.
        state: The folder for its state. `None`: the default.
        is_json: Lines of JSON.
        progress_s: The interval of status lines, in seconds.

    Raises:
        Error: The file is wrong, a secret cannot be read, or a library is missing.
    """
    bridge = file.read(path)
    place = folder("bridges", bridge.state_name, state)
    teller = Teller(is_json=is_json)
    return until_ended(
        place,
        "bridge",
        lambda end: EventsRun(bridge, place, teller, progress_s).run(end),
        lambda: teller.tell("ended at once; events of the last second may be delivered again"),
    )


def check(path: Path, *, is_file_only: bool) -> int:
    """Check a file and its secrets; then whether the edge answers. Nothing is sent to targets.

    Raises:
        Error: Something is wrong. The message says what to do.
    """
    bridge = file.read(path)
    targets = [f"webhook.{name}" for name in bridge.webhooks] + (["mqtt"] if bridge.mqtt else [])
    print(f"{path}: events go to {', '.join(targets)}")
    if is_file_only:
        return 0
    for webhook in bridge.webhooks.values():
        WebhookSender(webhook, bridge.name)
    if bridge.mqtt is not None:
        client_of(bridge.mqtt, bridge.name)
    web = opened(bridge)
    site = web.get("/api/v1/site")
    web.close()
    who, cameras = site["signed_in"]["identity"], site["cameras"]
    print(f"the edge {site['edge']} answers; as {who} this program sees {cameras} cameras")
    return 0
