"""Reports on a demo when it is over: figures for programs, sentences for people, and the verdict."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from rich.table import Table

import mez
from mez.demo.account import Totals
from mez.demo.accuracy import Accuracy
from mez.demo.application import Asked, Replies
from mez.demo.channel import Scenario
from mez.demo.contract import Account, Kept, account
from mez.demo.detector import DetectorTotals
from mez.demo.options import CAMERA_LOG_MIB, EDGE_LOG_MIB, Options
from mez.demo.supervise import Incident
from mez.demo.table import reasons
from mez.demo.traffic import Traffic

INCIDENTS_DETAILED_MAX: Final = 10

LATE_MS_MAX: Final = 5.0
"""If the emulator itself delayed bytes by more than this, the report says so."""


@dataclass(frozen=True, slots=True)
class Process:
    """The resources that one broker used, over all its starts.

    Attributes:
        name: `edge` or the camera's name.
        starts: How often it was started.
        rss_mb_max: Its largest memory, in megabytes; `None` if it was never measured.
        cpu_seconds: Processor time.
        stopped: Whether it ended in order when asked to.
    """

    name: str
    starts: int
    rss_mb_max: float | None
    cpu_seconds: float
    stopped: bool


@dataclass(frozen=True, slots=True)
class ScenarioResults:
    """The results of a scenario.

    Attributes:
        scenario: What was emulated and asked for.
        account: Figures on the contract.
        accuracy: Accuracy of the delivered frames; `None` if none was scored.
        late_ms_max: The longest delay that the emulator itself added.
        frames: Every frame that was delivered.
        begins_s: When the scenario began, by `time.monotonic`.
        shares: The smallest share of each camera of a declared channel, in bytes per frame.
    """

    scenario: Scenario
    account: Account
    accuracy: Accuracy | None
    late_ms_max: float
    frames: Sequence[Kept]
    begins_s: float
    shares: Mapping[str, int]

    def of_camera(self, camera: str) -> Account:
        """Return the figures on the contract for one camera."""
        own = [frame for frame in self.frames if frame.camera == camera]
        worse = [self.begins_s + at_s for at_s in self.scenario.worse_at_s()]
        return account(own, self.scenario.latency_ms, worse)

    def accuracy_of(self, camera: str) -> float | None:
        """Return the accuracy of one camera; `None` if it was not scored."""
        return self.accuracy.by_camera.get(camera) if self.accuracy else None

    def figures(self) -> dict[str, object]:
        """Return the figures, as they go into the JSON file."""
        account, accuracy = self.account, self.accuracy
        return {
            "scenario": self.scenario.name,
            "latency_bound_ms": self.scenario.latency_ms,
            "accuracy_floor": self.scenario.accuracy,
            "on_time_share": _rounded(account.on_time_share),
            "on_time_share_of_published": _rounded(account.on_time_share_of_published),
            "infeasible_share": _rounded(account.infeasible_share),
            "settle_ms": _rounded(account.settle_ms),
            "infeasible_notice_ms": _rounded(account.infeasible_notice_ms),
            "accuracy_normalised": _rounded(accuracy.normalised) if accuracy else None,
            "accuracy_normalised_strict": _rounded(accuracy.strict) if accuracy else None,
            "accuracy_expected": _rounded(accuracy.expected) if accuracy else None,
            "accuracy_frames": accuracy.frames if accuracy else 0,
            "shared_queue": list(self.scenario.shared),
            "edge_channels": list(self.scenario.edge_channels),
            "frames_by_rung": account.rungs,
            "channel_late_ms_max": _rounded(self.late_ms_max),
        }

    def sentences(self) -> list[str]:
        """Say whether the contract was kept."""
        account, accuracy, scenario = self.account, self.accuracy, self.scenario
        said = [f"Scenario {scenario.name}: {scenario.about}".rstrip(": ")]
        if scenario.shared:
            told = ", ".join(scenario.edge_channels)
            said.append(
                f"{len(scenario.shared)} cameras share one link; the edge "
                + (f"divides the channel {told}." if told else "has no channel to divide (edge_channels).")
            )
        if account.on_time_share is not None and account.on_time_share_of_published is not None:
            said.append(
                f"Within {scenario.latency_ms:g} ms: {100 * account.on_time_share:.1f} % of the frames "
                "delivered, "
                f"{100 * account.on_time_share_of_published:.1f} % of those published, without those "
                f"reported as infeasible ({100 * (account.infeasible_share or 0.0):.1f} % of the frames)."
            )
        if account.settle_ms is not None:
            said.append(f"After the link became slower, late frames came for {account.settle_ms:.0f} ms.")
        if accuracy is not None and accuracy.normalised is not None and accuracy.strict is not None:
            floor = "" if scenario.accuracy is None else f" (asked for: {scenario.accuracy:g})"
            expected = "" if accuracy.expected is None else f"; the profile predicted {accuracy.expected:.3f}"
            said.append(
                f"Accuracy on {accuracy.frames} of them, against the frames as published: "
                f"{accuracy.normalised:.3f}{floor}; strict {accuracy.strict:.3f}{expected}."
            )
        most = ", ".join(f"{rung} {count}" for rung, count in list(account.rungs.items())[:4])
        said.append(f"Frames by rung: {most}{' and others' * (len(account.rungs) > 4)}.")
        if self.late_ms_max > LATE_MS_MAX:
            said.append(
                f"This machine was busy: the emulated channel was up to {self.late_ms_max:.1f} ms late."
            )
        return said


@dataclass(frozen=True, slots=True)
class Results:
    """All results of a run.

    Attributes:
        options: What was asked for.
        elapsed_s: How long frames flowed.
        interrupted: Whether it was ended early, by Ctrl-C or a signal.
        totals: The frame counts.
        detector: Counts of the detector.
        replies: Counts of its results.
        traffic: Bytes published, and bytes that crossed the links.
        asked: What the application asked for.
        states: Frames that came at each state of the contract.
        edge: The edge broker.
        cameras: The camera brokers.
        incidents: Deaths of brokers.
        failures: Other failures, as sentences.
        scenario: The results of the scenario, if there was one.
    """

    options: Options
    elapsed_s: float
    interrupted: bool
    totals: Totals
    detector: DetectorTotals
    replies: Replies
    traffic: Traffic
    asked: Asked
    states: Mapping[str, int]
    edge: Process
    cameras: Sequence[Process]
    incidents: Sequence[Incident]
    failures: Sequence[str]
    scenario: ScenarioResults | None = None

    def problems(self) -> list[str]:
        """List every reason why the demo failed; empty if it succeeded."""
        totals = self.totals
        found = list(self.failures)
        silent = [name for name, camera in totals.cameras.items() if camera.delivered == 0]
        if totals.delivered == 0:
            found.append("No frame was delivered.")
        elif silent:
            found.append(f"No frame of {', '.join(silent)} was delivered.")
        if totals.corrupt:
            found.append(f"{totals.corrupt} frames were corrupt. {totals.corrupt_example}.")
        if totals.unexplained or totals.discrepancy_count:
            examples = "; ".join(str(example) for example in totals.discrepancies[:3])
            found.append(
                f"THE COUNTS DO NOT ADD UP: {totals.published} published, {totals.delivered} delivered, "
                f"{totals.skipped.total()} explained as skipped. {totals.discrepancy_count} deliveries "
                f"do not fit the one before: {examples}."
            )
        for incident in self.incidents:
            if incident.resume_ms is None:
                found.append(f"{incident}: its frames did not come back.{incident.log}")
            elif not incident.exit.from_outside:
                found.append(f"{incident}, but it should not have ended.{incident.log}")
        found += [
            f"{process.name} did not stop when asked, and was killed."
            for process in (self.edge, *self.cameras)
            if not process.stopped
        ]
        return found

    def latencies(self) -> dict[str, object]:
        """Return percentiles of the age over all frames."""
        return {f"latency_ms_p{percent}": _rounded(self.totals.age_ms(percent)) for percent in (50, 95, 99)}

    def contract(self) -> dict[str, object]:
        """Return the figures on the scenario's contract; empty without a scenario."""
        return self.scenario.figures() if self.scenario else {}

    def figures(self) -> dict[str, object]:
        """Return the figures, as they go into the JSON file."""
        totals, detector = self.totals, self.detector
        camera_rss = [camera.rss_mb_max for camera in self.cameras if camera.rss_mb_max is not None]
        return {
            "cameras": self.options.cameras,
            "published": totals.published,
            "delivered": totals.delivered,
            "skipped": dict(sorted(totals.skipped.items())),
            "corrupt": totals.corrupt,
            **self.latencies(),
            "detected_frames": sum(detector.frames.values()),
            "detections": sum(detector.detections.values()),
            "detector_ms_p50": _rounded(detector.detector_ms_p50),
            "edge_rss_mb": _rounded(self.edge.rss_mb_max),
            "camera_rss_mb_max": _rounded(max(camera_rss, default=None)),
            "balanced": totals.unexplained == 0 and totals.discrepancy_count == 0,
            "unexplained": totals.unexplained,
            "latency_unknown": sum(camera.ages_unknown for camera in totals.cameras.values()),
            "contract_states": dict(self.states),
            "published_bytes": self.traffic.published_bytes,
            "link_bytes": self.traffic.link_bytes,
            "replies": self.replies.sent,
            "replies_lost": self.replies.lost,
            "restarts": [
                {
                    "process": incident.broker,
                    "cause": str(incident.exit),
                    "resume_ms": _rounded(incident.resume_ms),
                }
                for incident in self.incidents
            ],
            "problems": self.problems(),
            "interrupted": self.interrupted,
            "elapsed_seconds": round(self.elapsed_s, 2),
            "edge_cpu_seconds": _rounded(self.edge.cpu_seconds),
            "per_camera": [self._row(process) for process in self.cameras],
            "parameters": {
                "seconds": self.options.seconds,
                "cameras": self.options.cameras,
                "fps": self.options.fps,
                "video": str(self.options.video),
                "app": self.options.app.name,
                "profile": None if self.asked.profile is None else self.asked.profile.name,
                "policy": self.options.policy,
                "edge_log_bytes_max": EDGE_LOG_MIB << 20,
                "camera_log_bytes_max": CAMERA_LOG_MIB << 20,
            },
            "versions": {
                "mez": mez.__version__,
                "python": platform.python_version(),
                "opencv": cv2.__version__,
                "numpy": np.__version__,
                "system": platform.platform(),
            },
            "cores": os.cpu_count(),
            **self.contract(),
        }

    def _row(self, process: Process) -> dict[str, object]:
        camera = self.totals.cameras[process.name]
        return {
            "camera": process.name,
            "published": camera.published,
            "delivered": camera.delivered,
            "skipped": dict(sorted(camera.skipped.items())),
            "corrupt": camera.corrupt,
            "epochs": camera.epochs,
            "latency_ms_p50": _rounded(camera.age_ms(50)),
            "latency_ms_p95": _rounded(camera.age_ms(95)),
            "latency_ms_p99": _rounded(camera.age_ms(99)),
            "size_bytes_mean": round(camera.size_bytes / camera.delivered) if camera.delivered else None,
            "detected_frames": self.detector.frames.get(process.name, 0),
            "detections": self.detector.detections.get(process.name, 0),
            "rss_mb_max": _rounded(process.rss_mb_max),
            "cpu_seconds": _rounded(process.cpu_seconds),
            **self._contract_row(process.name),
        }

    def _contract_row(self, name: str) -> dict[str, object]:
        if self.scenario is None:
            return {}
        account = self.scenario.of_camera(name)
        return {
            "on_time_share": _rounded(account.on_time_share),
            "on_time_share_of_published": _rounded(account.on_time_share_of_published),
            "infeasible_share": _rounded(account.infeasible_share),
            "accuracy_normalised": _rounded(self.scenario.accuracy_of(name)),
            "share_frame_bytes_min": self.scenario.shares.get(name),
        }

    def table(self) -> Table:
        """Return the summary as a table: a row per camera, and one for all."""
        table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
        table.add_column("camera", min_width=11)
        last = ("searched", "found") if self.scenario is None else ("on time %", "accuracy")
        for name in ("published", "delivered", "skipped", "age ms", "p95 ms", "p99 ms", *last):
            table.add_column(name, justify="right", no_wrap=True)
        for camera in self.totals.cameras.values():
            table.add_row(
                camera.camera,
                f"{camera.published}",
                f"{camera.delivered}",
                f"{camera.skipped.total()}",
                *(_shown(camera.age_ms(percent), 1) for percent in (50, 95, 99)),
                *self._last_columns(camera.camera),
            )
        if len(self.totals.cameras) > 1:
            table.add_row(
                "all",
                f"{self.totals.published}",
                f"{self.totals.delivered}",
                f"{self.totals.skipped.total()}",
                *(_shown(self.totals.age_ms(percent), 1) for percent in (50, 95, 99)),
                *self._last_columns(None),
                style="bold",
            )
        return table

    def _last_columns(self, camera: str | None) -> tuple[str, str]:
        """Frames searched and boxes found; in a scenario, frames on time and accuracy."""
        scenario, detector = self.scenario, self.detector
        if scenario is None:
            counts = (detector.frames, detector.detections)
            one, other = (sum(of.values()) if camera is None else of.get(camera, 0) for of in counts)
            return f"{one}", f"{other}"
        if camera is None:
            kept, accuracy = scenario.account, scenario.accuracy.normalised if scenario.accuracy else None
        else:
            kept, accuracy = scenario.of_camera(camera), scenario.accuracy_of(camera)
        share = kept.on_time_share_of_published
        return _shown(None if share is None else 100 * share, 1), _shown(accuracy, 3)

    def sentences(self) -> list[str]:
        """Describe the run."""
        more = len(self.incidents) - INCIDENTS_DETAILED_MAX
        return [
            sentence
            for sentence in (
                self._about_frames(),
                self._about_latency(),
                *(self.scenario.sentences() if self.scenario else ()),
                self._about_contract(),
                self._about_detector(),
                self._about_brokers(),
                *(f"{incident}." for incident in self.incidents[:INCIDENTS_DETAILED_MAX]),
                f"Brokers died {more} more times." if more > 0 else "",
            )
            if sentence
        ]

    def _about_frames(self) -> str:
        totals = self.totals
        if totals.delivered == 0:
            return ""
        share = 100 * totals.delivered / max(totals.published, 1)
        skipped = totals.skipped.total()
        rest = (
            f"the other {skipped} are explained: {reasons(totals.skipped)}" if skipped else "none was skipped"
        )
        whole = "all of them intact" if totals.corrupt == 0 else f"{totals.corrupt} of them CORRUPT"
        cameras = "1 camera" if len(totals.cameras) == 1 else f"{len(totals.cameras)} cameras"
        return (
            f"In {self.elapsed_s:.0f} s, {cameras} published {totals.published} frames. "
            f"{totals.delivered} were delivered ({share:.1f} %), {whole}; {rest}."
        )

    def _about_latency(self) -> str:
        p50, p95, p99 = (self.totals.age_ms(percent) for percent in (50, 95, 99))
        if p50 is None or p95 is None or p99 is None:
            return ""
        return (
            f"From capture to the application: half of the frames within {p50:.1f} ms, "
            f"95 % within {p95:.1f} ms, 99 % within {p99:.1f} ms."
        )

    def _about_contract(self) -> str:
        asked, frames = self.asked, sum(self.states.values())
        if frames == 0 or (asked.latency_ms is None and asked.accuracy is None):
            return ""
        wants = [
            *([f"{asked.latency_ms:g} ms"] if asked.latency_ms is not None else []),
            *([f"an accuracy of {asked.accuracy:g}"] if asked.accuracy is not None else []),
        ]
        by = ""
        if asked.accuracy is not None:
            by = ", without a profile" if asked.profile is None else f" by the profile {asked.profile.stem}"
        shares = ", ".join(f"{100 * count / frames:.1f} % {state}" for state, count in self.states.items())
        return f"The contract asked for {' and '.join(wants)}{by}. Frames by its state: {shares}."

    def _about_detector(self) -> str:
        detector = self.detector
        frames = sum(detector.frames.values())
        if detector.detector_ms_p50 is None:
            return ""
        lost = f" ({self.replies.lost} more were lost)" if self.replies.lost else ""
        return (
            f"The detector searched {frames} frames ({frames / max(self.elapsed_s, 0.1):.1f} a second, "
            f"median {detector.detector_ms_p50:.0f} ms each, one thread at the lowest priority), found "
            f"{sum(detector.detections.values())} boxes, and sent {self.replies.sent} results back to "
            f"the cameras{lost}."
        )

    def _about_brokers(self) -> str:
        cameras = max(
            (camera.rss_mb_max for camera in self.cameras if camera.rss_mb_max is not None), default=None
        )
        if self.edge.rss_mb_max is None or cameras is None:
            return ""
        share = 100 * self.edge.cpu_seconds / max(self.elapsed_s, 0.1)
        return (
            f"The edge used {self.edge.rss_mb_max:.0f} MB (frames: at most {EDGE_LOG_MIB} MiB) and "
            f"{share:.0f} % of a core, a camera broker at most {cameras:.0f} MB ({CAMERA_LOG_MIB} MiB)."
        )


def write_json(path: Path, figures: Mapping[str, object]) -> None:
    """Write the figures.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
