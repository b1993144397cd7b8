/** What is held at an instant, in sentences. */

import type { Held } from "../api/types.ts";
import { atCamera, holeAt, isAtCamera, spanAt } from "../state/past.ts";
import { cameraHoleInWords, holeInWords } from "./states.ts";
import * as units from "./units.ts";

export const total = (skipped: Record<string, number>): number => Object.values(skipped).reduce((sum, count) => sum + count, 0);

const lacking = (skipped: Record<string, number>): string => {
    const count = total(skipped);
    return count === 0 ? "" : `; ${units.counted(count, "frame")} between them were not sent or not kept`;
};

/** What is held at an instant: at the edge, else at the camera. If it is nowhere, why. */
export function standing(held: Held, at: number): string {
    const span = spanAt(held, at);
    if (span) return `The edge holds ${units.counted(span.frames, "frame")} of this stretch${lacking(span.skipped)}.`;
    if (at > held.surveyed_until_utc_ms) return "There are too many frames to say what is held here; show a shorter span.";
    const why = holeInWords(holeAt(held, at)?.reason ?? "not_published");
    const camera = atCamera(held);
    const there = camera && spanAt(camera, at);
    if (there) {
        const frames = units.counted(there.frames, "frame");
        return `The edge holds nothing here: ${why}. The camera holds ${frames} of this stretch${lacking(there.skipped)}.`;
    }
    if (isAtCamera(held, at)) return `The edge holds nothing here: ${why}. The camera may hold frames.`;
    const hole = camera && holeAt(camera, at);
    if (hole) return `Nothing is held here: ${why}. The camera holds nothing here either: ${cameraHoleInWords(hole.reason)}.`;
    const absent = held.camera_unanswered === null ? "" : " The camera could not be asked.";
    return `Nothing is held here: ${why}.${absent}`;
}
