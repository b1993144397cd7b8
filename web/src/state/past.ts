/** Computations for the history view: pieces of a bar, the span or hole at an instant, playback, and the boxes of a frame. */

import type { Held, Hole, HeldSpan, Note, Notes, Reply } from "../api/types.ts";

/** How long the boxes of a reply are drawn, in milliseconds. After this time, moving objects are elsewhere. */
const FOUND_LASTS_MS = 2_000;

/** Maximum number of pages of notes that are read for one span. */
const PAGES_MAX = 5;

/** Reads the notes of a span, page by page. `more`: there are more pages than were read. */
export async function allNotes(page: (after?: string) => Promise<Notes>): Promise<{ notes: Note[]; more: boolean }> {
    const notes: Note[] = [];
    let next: string | null = null;
    for (let read = 0; read < PAGES_MAX; read += 1) {
        const answer = await page(next ?? undefined);
        notes.push(...answer.notes);
        next = answer.next;
        if (next === null) break;
    }
    return { notes, more: next !== null };
}

/** A piece of a bar, as shares of the bar's width. */
export interface Piece {
    left: number;
    width: number;
}

/** The piece for the time from `from` to `to`, on a bar that shows the requested span. */
export function piece(from: number, to: number, { since_utc_ms: since, until_utc_ms: until }: Held): Piece {
    const share = (at: number): number => Math.min(1, Math.max(0, (at - since) / (until - since)));
    return { left: share(from), width: share(to) - share(from) };
}

/** Spans and holes, of the edge or of the camera. */
export interface Stretches {
    spans: readonly HeldSpan[];
    holes: readonly Hole[];
}

/** The camera's own spans and holes. `null`: the camera did not report them. Then at most the time of its oldest frame is known. */
export const atCamera = ({ camera_spans: spans, camera_holes: holes }: Held): Stretches | null => spans && holes && { spans, holes };

/** The end of a span that was not surveyed, because the survey reached its limit. */
export interface Unsurveyed {
    from_utc_ms: number;
    to_utc_ms: number;
}

/** The part of the requested span after `until`, the end of a survey. `null`: the survey covers the whole span, or there was no survey. */
export const unsurveyed = ({ until_utc_ms: end }: Held, until: number | null): Unsurveyed | null =>
    until !== null && until < end ? { from_utc_ms: until, to_utc_ms: end } : null;

/** The span that contains an instant. */
export const spanAt = ({ spans }: Stretches, at: number): HeldSpan | undefined =>
    spans.find(({ from_utc_ms: from, to_utc_ms: to }) => from <= at && at <= to);

/** The hole that contains an instant. */
export const holeAt = ({ holes }: Stretches, at: number): Hole | undefined =>
    holes.find(({ from_utc_ms: from, to_utc_ms: to }) => from < at && at < to);

/** Whether the camera may have frames of an instant. Also true in pauses too short to count as holes, and in what it did not survey. */
export function isAtCamera(held: Held, at: number): boolean {
    const from = held.camera_from_utc_ms;
    if (from === null || at < from) return false;
    const camera = atCamera(held);
    // If the camera's clock was set back, a hole may overlap a span.
    return camera === null || holeAt(camera, at) === undefined || spanAt(camera, at) !== undefined;
}

/** Where playback continues: at `at`, or after it, where edge or camera may have frames again. `null`: no frames follow. */
export function playedFrom(held: Held, at: number): number | null {
    const hole = holeAt(held, at);
    if (!hole || isAtCamera(held, at)) return at < held.until_utc_ms ? at : null;
    const on = Math.min(hole.to_utc_ms, cameraHoldsFrom(held, at));
    return on < held.until_utc_ms ? on : null;
}

/** The first time after an instant in a hole of the camera at which the camera may have frames again. */
function cameraHoldsFrom(held: Held, at: number): number {
    const camera = atCamera(held);
    const hole = camera && holeAt(camera, at);
    return hole ? hole.to_utc_ms : Math.max(at, held.camera_from_utc_ms ?? Infinity);
}

/** The frame on the screen. */
export interface ShownFrame {
    epoch: number;
    sequence: number;
    capturedMs: number;
}

/** The replies to draw on a frame: of each application, its last reply to this frame, or to a frame captured less than 2 s before. */
export function repliesOn(frame: ShownFrame, notes: readonly Note[]): Reply[] {
    const drawn = new Map<string, Reply>();
    for (const { application, reply, at_utc_ms: at } of notes) {
        if (!reply || application === null) continue;
        const before = frame.capturedMs - (reply.captured_utc_ms ?? -Infinity);
        const isOfFrame = reply.epoch === frame.epoch && reply.sequence === frame.sequence;
        // Frames of an earlier epoch are compared by capture time only.
        const isBefore = reply.epoch < frame.epoch || (reply.epoch === frame.epoch && reply.sequence < frame.sequence);
        if (isOfFrame || (isBefore && before >= 0 && before < FOUND_LASTS_MS)) {
            const { epoch, sequence, width, height, found, detections } = reply;
            drawn.set(application, { application, epoch, sequence, width, height, found, detections, since_ms: frame.capturedMs - at });
        }
    }
    return [...drawn.values()];
}
