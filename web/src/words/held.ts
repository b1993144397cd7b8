/** Sentences that say whether there are frames of an instant. */

import type { Held } from "../api/types.ts";
import { atCamera, holeAt, isAtCamera, spanAt } from "../state/past.ts";
import { cameraHoleInWords, holeInWords } from "./states.ts";
import * as units from "./units.ts";

export const total = (skipped: Record<string, number>): number => Object.values(skipped).reduce((sum, count) => sum + count, 0);

const lacking = (skipped: Record<string, number>): string => {
    const count = total(skipped);
    return count === 0 ? "" : ` (missing: ${units.counted(count, "frame")})`;
};

/** Says whether the edge, or else the camera, has frames of an instant. If neither has, gives the reasons. */
export function standing(held: Held, at: number): string {
    const span = spanAt(held, at);
    if (span) return `The edge has frames of this time, in a span of ${units.counted(span.frames, "frame")}${lacking(span.skipped)}.`;
    if (at > held.surveyed_until_utc_ms) return "There are too many frames to examine this time; choose a shorter span.";
    const why = holeInWords(holeAt(held, at)?.reason ?? "not_published");
    const camera = atCamera(held);
    const there = camera && spanAt(camera, at);
    if (there) {
        const frames = units.counted(there.frames, "frame");
        return `The edge has no frames of this time: ${why}. The camera has a span of ${frames}${lacking(there.skipped)}.`;
    }
    if (isAtCamera(held, at)) return `The edge has no frames of this time: ${why}. The camera may have frames.`;
    const hole = camera && holeAt(camera, at);
    if (hole) return `The edge has no frames of this time: ${why}. The camera has none either: ${cameraHoleInWords(hole.reason)}.`;
    if (held.camera_unanswered !== null) return `The edge has no frames of this time: ${why}. The camera did not answer.`;
    return `There are no frames of this time: ${why}.`;
}
