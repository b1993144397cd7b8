/** Requests to the edge that serves this page. The page sends requests to no other server. */

import type { Applications, Cameras, Held, Notes, PastRecord, Problem, Replies, Site } from "./types.ts";

/** The edge refused a request. `detail` says what to do. */
export class RefusedError extends Error {
    readonly status: number;
    constructor(status: number, detail: string) {
        super(detail);
        this.name = "RefusedError";
        this.status = status;
    }
}

/** Longest wait for an answer, in milliseconds. After this time, the edge counts as away. */
const ANSWER_MS_MAX = 5_000;

async function ask(path: string, options: RequestInit = {}): Promise<Response> {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS_MAX), ...options });
    if (response.ok || response.status === 304) return response;
    throw new RefusedError(response.status, await detailOf(response));
}

async function detailOf(response: Response): Promise<string> {
    try {
        return ((await response.json()) as Problem).detail;
    } catch {
        return `The edge answered with HTTP status ${response.status}.`;
    }
}

const read = async <T>(path: string): Promise<T> => (await ask(path)).json() as Promise<T>;

export const site = (): Promise<Site> => read("/api/v1/site");
export const cameras = (): Promise<Cameras> => read("/api/v1/cameras");
export const applications = (): Promise<Applications> => read("/api/v1/applications");

/** Exchanges the token of a one-time link for a session, which the browser keeps in a cookie that scripts cannot read. */
export async function signIn(token: string): Promise<void> {
    await ask("/api/v1/session", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ token }),
    });
}

export async function signOut(): Promise<void> {
    await ask("/api/v1/session", { method: "DELETE" });
}

/** The last replies of applications to a camera's frames. */
export const replies = (camera: string): Promise<Replies> => read(pathOf(camera, "replies"));

const pathOf = (camera: string, what: string, asked: Record<string, number | string> = {}): string => {
    const query = Object.entries(asked).map(
        ([name, value]) => `${name}=${typeof value === "number" ? Math.round(value) : encodeURIComponent(value)}`,
    );
    return `/api/v1/cameras/${camera.split("/").map(encodeURIComponent).join("/")}/${what}${query.length > 0 ? `?${query.join("&")}` : ""}`;
};

/** A span of time, in milliseconds since 1970. */
export interface Span {
    since_utc_ms: number;
    until_utc_ms: number;
}

/** Spans with frames and holes in a camera's past. The edge reads its log for this, which may take a few seconds. */
export async function held(camera: string, { since_utc_ms, until_utc_ms }: Span, signal: AbortSignal): Promise<Held> {
    const response = await ask(pathOf(camera, "history", { since_utc_ms, until_utc_ms }), { signal });
    return response.json() as Promise<Held>;
}

/** One page of the notes about a camera's frames. `after`: `next` of the previous page. */
export async function notes(
    camera: string,
    { since_utc_ms, until_utc_ms, after }: Span & { after?: string },
    signal: AbortSignal,
): Promise<Notes> {
    const asked = { since_utc_ms, until_utc_ms, ...(after === undefined ? {} : { after }) };
    const response = await ask(pathOf(camera, "notes", asked), { signal });
    return response.json() as Promise<Notes>;
}

/** The address of a clip of a camera's past. */
export const clipHref = (camera: string, { since_utc_ms, until_utc_ms }: Span): string =>
    pathOf(camera, "clip", { since_utc_ms, until_utc_ms });

/** A picture of the past. */
export interface PastPicture {
    jpeg: Blob;
    epoch: number;
    sequence: number;
    capturedMs: number;
    rung: string;
}

/** The first picture at or after an instant. `null`: there is none within `within_ms`. */
export async function instant(
    camera: string,
    asked: { at_utc_ms: number; within_ms: number },
    signal: AbortSignal,
): Promise<PastPicture | null> {
    const response = await ask(pathOf(camera, "instant", asked), { signal });
    if (response.status !== 200) return null;
    const number = (name: string): number => Number(response.headers.get(name));
    return {
        jpeg: await response.blob(),
        epoch: number("mez-epoch"),
        sequence: number("mez-sequence"),
        capturedMs: number("mez-captured-utc-ms"),
        rung: response.headers.get("mez-rung") ?? "",
    };
}

/** The first record at or after an instant. `null`: there is none within `within_ms`. */
export async function record(camera: string, asked: { at_utc_ms: number; within_ms: number }, signal: AbortSignal): Promise<PastRecord> {
    const response = await ask(pathOf(camera, "record", asked), { signal });
    return ((await response.json()) as { record: PastRecord }).record;
}

/** An H.264 frame, as the edge has it. */
export interface Coded {
    /** Whether decoding can begin with this frame. */
    key: boolean;
    bytes: Uint8Array;
}

/** H.264 frames of a camera, as they arrived at the edge. */
export interface Video {
    /** Identity of the last frame: `EPOCH-SEQUENCE`. */
    last: string;
    frames: Coded[];
    /** Age of the last frame when the edge sent it, in milliseconds. `null`: unknown. */
    ageMs: number | null;
}

/** The bit in a frame's length that says that decoding can begin with this frame. */
const KEY = 0x8000_0000;

/** Parses the frames in the body of an answer. Before each frame stands its length: four bytes, big-endian, with the bit `KEY`. */
export function framesIn(body: ArrayBuffer): Coded[] {
    const view = new DataView(body);
    const frames: Coded[] = [];
    for (let at = 0; at + 4 <= body.byteLength;) {
        const told = view.getUint32(at);
        const length = told & ~KEY;
        if (at + 4 + length > body.byteLength) throw new Error("the last frame is incomplete");
        frames.push({ key: (told & KEY) !== 0, bytes: new Uint8Array(body, at + 4, length) });
        at += 4 + length;
    }
    return frames;
}

/** The H.264 frames of a camera after the frame `after`. `null`: no newer frame has come, or the frames are not H.264. */
export async function video(camera: string, after: string | null, signal: AbortSignal): Promise<Video | null> {
    const path = pathOf(camera, "video", after === null ? {} : { after });
    const response = await ask(path, { signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS_MAX)]) });
    if (response.status !== 200) return null;
    const age = response.headers.get("mez-age-ms");
    return {
        last: `${response.headers.get("mez-epoch")}-${response.headers.get("mez-sequence")}`,
        frames: framesIn(await response.arrayBuffer()),
        ageMs: age === null ? null : Number(age),
    };
}

/** A picture of a camera. */
export interface Picture {
    etag: string;
    jpeg: Blob;
    /** Age of the picture when the edge sent it, in milliseconds. `null`: unknown. */
    ageMs: number | null;
}

/**
 * The newest picture at `path`. `null`: it is still the picture with this `etag`, or no picture has come yet.
 *
 * The first request makes the edge request frames from the camera, and waits for a frame.
 */
export async function picture(path: string, etag: string | null, signal: AbortSignal): Promise<Picture | null> {
    const response = await ask(path, {
        signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS_MAX)]),
        headers: etag === null ? {} : { "if-none-match": etag },
    });
    if (response.status !== 200) return null;
    const age = response.headers.get("mez-age-ms");
    return {
        etag: response.headers.get("etag") ?? "",
        jpeg: await response.blob(),
        ageMs: age === null ? null : Number(age),
    };
}
