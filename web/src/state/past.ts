/** What a history shows of an answer: pieces of a bar, what is held at an instant, and the boxes of a frame. */

import type { Held, Hole, HeldSpan, Note, Notes, Reply } from "../api/types.ts";

/** For how long what was found is drawn, in milliseconds. Whatever moves is elsewhere by then. */
const FOUND_LASTS_MS = 2_000;

/** The most pages of notes that are read for one span. */
const PAGES_MAX = 5;

/** The notes of a span, page by page, and whether there are more than are read. */
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

/** A piece of a bar, as shares of its width. */
export interface Piece {
    left: number;
    width: number;
}

/** Where a stretch of time stands on a bar from `since` to `until`. */
export function piece(from: number, to: number, { since_utc_ms: since, until_utc_ms: until }: Held): Piece {
    const share = (at: number): number => Math.min(1, Math.max(0, (at - since) / (until - since)));
    return { left: share(from), width: share(to) - share(from) };
}

/** What somebody holds: the edge, or the camera. */
export interface Stretches {
    spans: readonly HeldSpan[];
    holes: readonly Hole[];
}

/** What the camera itself holds of the span. `null`: it has not said it. Then it is known at most from when on it holds frames. */
export const atCamera = ({ camera_spans: spans, camera_holes: holes }: Held): Stretches | null => spans && holes && { spans, holes };

/** What was not surveyed of a span, because there was too much. */
export interface Unsurveyed {
    from_utc_ms: number;
    to_utc_ms: number;
}

/** What is behind `until`, up to where a log was surveyed. `null`: all of it was. */
export const unsurveyed = ({ until_utc_ms: end }: Held, until: number | null): Unsurveyed | null =>
    until !== null && until < end ? { from_utc_ms: until, to_utc_ms: end } : null;

/** The span with an instant in it. */
export const spanAt = ({ spans }: Stretches, at: number): HeldSpan | undefined =>
    spans.find(({ from_utc_ms: from, to_utc_ms: to }) => from <= at && at <= to);

/** The hole with an instant in it. */
export const holeAt = ({ holes }: Stretches, at: number): Hole | undefined =>
    holes.find(({ from_utc_ms: from, to_utc_ms: to }) => from < at && at < to);

/** Whether the camera itself may hold frames of an instant: pauses too short to be told count, and what it has not surveyed. */
export function isAtCamera(held: Held, at: number): boolean {
    const from = held.camera_from_utc_ms;
    if (from === null || at < from) return false;
    const camera = atCamera(held);
    // If its clock was set back, a hole may lie over a span.
    return camera === null || holeAt(camera, at) === undefined || spanAt(camera, at) !== undefined;
}

/** Where playback goes on: at `at`, or behind a hole that nobody can fill. `null`: there is nothing more. */
export function playedFrom(held: Held, at: number): number | null {
    const hole = holeAt(held, at);
    if (!hole || isAtCamera(held, at)) return at < held.until_utc_ms ? at : null;
    const on = Math.min(hole.to_utc_ms, cameraHoldsFrom(held, at));
    return on < held.until_utc_ms ? on : null;
}

/** From when on, behind an instant of which it holds nothing, the camera may hold frames again. */
function cameraHoldsFrom(held: Held, at: number): number {
    const camera = atCamera(held);
    const hole = camera && holeAt(camera, at);
    return hole ? hole.to_utc_ms : Math.max(at, held.camera_from_utc_ms ?? Infinity);
}

/** A frame that is shown. */
export interface ShownFrame {
    epoch: number;
    sequence: number;
    capturedMs: number;
}

/** The replies to draw on a frame: of each application the one to this frame, or the newest to a frame just before it. */
export function repliesOn(frame: ShownFrame, notes: readonly Note[]): Reply[] {
    const drawn = new Map<string, Reply>();
    for (const { application, reply, at_utc_ms: at } of notes) {
        if (!reply || application === null) continue;
        const before = frame.capturedMs - (reply.captured_utc_ms ?? -Infinity);
        const isOfFrame = reply.epoch === frame.epoch && reply.sequence === frame.sequence;
        // Of another start, only the times compare.
        const isBefore = reply.epoch < frame.epoch || (reply.epoch === frame.epoch && reply.sequence < frame.sequence);
        if (isOfFrame || (isBefore && before >= 0 && before < FOUND_LASTS_MS)) {
            const { epoch, sequence, width, height, found, detections } = reply;
            drawn.set(application, { application, epoch, sequence, width, height, found, detections, since_ms: frame.capturedMs - at });
        }
    }
    return [...drawn.values()];
}
