"""Writes the report as one HTML file, which needs no other file and no network."""

import base64
import html
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import cv2

from mez.profile.document import Profile
from mez.profile.make import Cost, ceiling_of
from mez.profile.report.examples import Example
from mez.profile.report.plot import ACCURACY_SHOWN_MIN, colour_of

JPEG_QUALITY: Final = 85
"""JPEG quality of the example frames. It is high enough to show what a rung did to the picture."""


def write(path: Path, profile: Profile, examples: Sequence[Example] = (), cost: Cost | None = None) -> None:
    """Write the report."""
    template = resources.files("mez.profile.report").joinpath("page.html").read_text()
    best = {rung.rung for rung in profile.frontier}
    ceiling = ceiling_of(profile.about)
    data = {
        "ceiling": ceiling.value if ceiling is not None else None,
        "accuracyMin": ACCURACY_SHOWN_MIN,
        "families": [
            {"name": name, "colour": colour_of(name, profile.families)} for name in profile.families
        ],
        "rungs": [
            {
                "rung": rung.rung,
                "family": rung.family,
                "bytes": rung.bytes_per_published_frame,
                "p95": rung.bytes.p95,
                "sent": rung.sent_share,
                "value": rung.accuracy_normalised.value,
                "low": rung.accuracy_normalised.low,
                "high": rung.accuracy_normalised.high,
                "strict": rung.accuracy_normalised_strict.value if rung.accuracy_normalised_strict else None,
                "cameraMs": rung.camera_ms_mean,
                "detectorMs": rung.detector_ms_mean,
                "best": rung.rung in best,
            }
            for rung in profile.rungs
        ],
    }
    about = profile.about
    # Escaped, because "</script>" in a name would end the script.
    encoded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    filled = {
        "TITLE": html.escape(f"{about.app} on {about.video}"),
        "FACTS": _facts(profile, cost),
        "ROWS": _rows(profile),
        "EXAMPLES": "\n".join(map(_figure, examples))
        or "<p>No frames: the report was made without the video.</p>",
        "DATA": encoded,
    }
    for name, text in filled.items():
        template = template.replace(f"<!--{name}-->", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template)


def _facts(profile: Profile, cost: Cost | None) -> str:
    about = profile.about
    ceiling = ceiling_of(about)
    facts = {
        "application": f"{about.app} (strong {about.strong}, weak {about.weak})",
        "video": f"{about.video}, {about.width}x{about.height}, {about.frames_scored} frames scored",
        "boxes in the reference": f"{about.reference_boxes}",
        "the detector's own ceiling": f"{ceiling.value:.3f}; no floor should be above"
        if ceiling
        else "not measured",
        "profile": profile.name,
        "made by": about.made_by,
    }
    if about.source:
        facts["source"] = about.source
    if cost is not None:
        facts["measured"] = (
            f"{cost.rungs_screened} of {cost.rungs} rungs on few frames, {cost.rungs_measured} on all: "
            f"{cost.share:.0%} of the frames of a full measurement"
        )
    return "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in facts.items()
    )


def _rows(profile: Profile) -> str:
    rows = []
    for rung in profile.frontier:
        score, strict = rung.accuracy_normalised, rung.accuracy_normalised_strict
        interval = (
            f"{score.low:.3f} to {score.high:.3f}" if score.low is not None and score.high is not None else ""
        )
        cells = (
            rung.rung,
            f"{rung.bytes_per_published_frame:,.0f}",
            f"{rung.bytes.p95:,.0f}",
            f"{score.value:.3f}",
            interval,
            f"{strict.value:.3f}" if strict is not None else "",
            f"{rung.camera_ms_mean:.1f}" if rung.camera_ms_mean is not None else "",
            f"{rung.detector_ms_mean:.0f}" if rung.detector_ms_mean is not None else "",
        )
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return "\n".join(rows)


def _figure(example: Example) -> str:
    _, encoded = cv2.imencode(".jpg", example.image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    data = base64.b64encode(encoded.tobytes()).decode()
    title, note = html.escape(example.title), html.escape(example.note)
    picture = f'<img alt="{title}" src="data:image/jpeg;base64,{data}">'
    return f"<figure>{picture}<figcaption><b>{title}</b><br>{note}</figcaption></figure>"
