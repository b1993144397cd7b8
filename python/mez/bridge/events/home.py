"""The figures of a camera for MQTT, and their description for Home Assistant."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import mez
from mez._contract_states import NOT_KEPT
from mez.bridge.events.file import Mqtt

_CONTRACTS_MAX: Final = 16


def figures(camera: Mapping[str, Any]) -> dict[str, Any]:
    """The retained state of a camera.

    Args:
        camera: The edge's data of it (`Camera` of docs/schema/openapi.json).
    """
    contracts = [of for of in camera["contracts"] if of["state"] is not None]
    broken = [of for of in contracts if of["state"] in NOT_KEPT]
    latencies = [of["latency_p95_ms"] for of in contracts if of["latency_p95_ms"] is not None]
    bounds = [of["latency_bound_ms"] for of in contracts if of["latency_bound_ms"] is not None]
    newest, source = camera["newest"] or {}, camera["source"] or {}
    return {
        "present": camera["connected"],
        "source": source.get("state"),
        "contract_kept": not broken if contracts else None,
        "contracts": [
            {name: of[name] for name in ("application", "state", "reason")}
            for of in (broken or contracts)[:_CONTRACTS_MAX]
        ],
        "latency_ms": _rounded(max(latencies, default=None)),
        "latency_bound_ms": min(bounds, default=None),
        "age_ms": _rounded(newest.get("age_ms")),
        "frames_per_second": _rounded(camera["frames_per_second"]),
        "rung": newest.get("rung"),
    }


def camera_topic(mqtt: Mqtt, camera: str) -> str:
    """The topic of a camera's retained state. Names of cameras have no special characters of topics."""
    return f"{mqtt.topic}/cameras/{camera}"


def status_topic(mqtt: Mqtt) -> str:
    """The topic that says whether the bridge runs and the edge answers: `online` or `offline`."""
    return f"{mqtt.topic}/status"


def config_topic(mqtt: Mqtt, camera: str) -> str:
    """The topic in which Home Assistant looks for the camera's device."""
    return f"{mqtt.discovery}/device/{_object(mqtt, camera)}/config"


def device(mqtt: Mqtt, camera: str) -> dict[str, Any]:
    """The camera as a device for Home Assistant's MQTT discovery."""
    known = _object(mqtt, camera)

    def part(platform: str, id: str, name: str, template: str, **more: str) -> dict[str, str]:  # noqa: A002
        template = "{{ " + template + " }}"
        return {
            "platform": platform,
            "unique_id": f"{known}_{id}",
            "name": name,
            "value_template": template,
            **more,
        }

    def switch(id: str, name: str, **more: str) -> dict[str, str]:  # noqa: A002
        # Home Assistant takes `None` as unknown.
        template = f"'None' if value_json.{id} is none else 'ON' if value_json.{id} else 'OFF'"
        return part("binary_sensor", id, name, template, **more)

    def time(id: str, name: str) -> dict[str, str]:  # noqa: A002
        about = {"device_class": "duration", "unit_of_measurement": "ms", "state_class": "measurement"}
        return part("sensor", id, name, f"value_json.{id}", **about)

    return {
        "device": {"identifiers": [known], "name": camera, "manufacturer": "Mez", "model": "Camera"},
        "origin": {"name": "Mez", "sw_version": mez.__version__},
        "availability_topic": status_topic(mqtt),
        "state_topic": camera_topic(mqtt, camera),
        "components": {
            "present": switch("present", "Present", device_class="connectivity"),
            "contract_kept": switch("contract_kept", "Contract kept"),
            "latency_ms": time("latency_ms", "Latency"),
            "age_ms": time("age_ms", "Age"),
        },
    }


def _object(mqtt: Mqtt, camera: str) -> str:
    """An id for this bridge and camera, in the characters that Home Assistant allows."""
    digest = hashlib.sha256(f"{mqtt.topic} {camera}".encode()).hexdigest()[:8]
    return f"mez_{re.sub('[^a-zA-Z0-9_-]', '_', camera)}_{digest}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
