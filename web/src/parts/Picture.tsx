/** The newest picture of a camera, updated while it is visible. */

import { useEffect, useRef, useState } from "preact/hooks";

import { picture, RefusedError, replies, video } from "../api/client.ts";
import type { Camera, Found, Reply } from "../api/types.ts";
import * as units from "../words/units.ts";
import { decodesVideo, Player } from "./player.ts";

/** Interval between requests. The edge makes at most five pictures a second. Video is requested as often, a few frames at a time. */
const PICTURE_MS = 200;
/** After this many bytes of video, the edge may have more: it sends at most 256 KiB at a time. */
const LARGE_BYTES = 128 * 1024;
/** After this many decoders in a row without a picture, this browser requests pictures instead of video. */
const FAILURES_MAX = 3;
/** Pause after an error, and between requests for replies while there are none. */
const RETRY_MS = 2_000;

/** How long the boxes of a reply are drawn. After this time, moving objects are elsewhere. */
const FOUND_LASTS_MS = 2_000;
const NOTHING_FOUND: readonly Reply[] = [];

/** The picture on the canvas. */
interface Shown {
    /** Age of the picture when the edge sent it, in milliseconds. `null`: unknown. */
    ageMs: number | null;
    /** When the picture was drawn, by `performance.now()`. */
    atMs: number;
}

/** Age of the picture, in milliseconds. The time since it was drawn is added if no newer picture has come for a second. */
function ageOf(shown: Shown | null): number | null {
    if (shown === null || shown.ageMs === null) return null;
    const since = performance.now() - shown.atMs;
    return since < 1_000 ? shown.ageMs : shown.ageMs + since;
}

/** Whether an element is on the screen, in a page that is visible. */
function useSeen(element: { current: Element | null }): boolean {
    const [seen, setSeen] = useState(false);
    useEffect(() => {
        let near = false;
        const tell = (): void => setSeen(near && !document.hidden);
        const observer = new IntersectionObserver((entries) => {
            near = entries.at(-1)?.isIntersecting ?? false;
            tell();
        });
        if (element.current) observer.observe(element.current);
        document.addEventListener("visibilitychange", tell);
        return () => {
            observer.disconnect();
            document.removeEventListener("visibilitychange", tell);
        };
    }, []);
    return seen;
}

/** Whether this browser decodes video. Checked once. */
const decodes = decodesVideo();
function useDecodesVideo(): boolean {
    const [told, setTold] = useState(false);
    useEffect(() => void decodes.then(setTold), []);
    return told;
}

/** Functions that `follow` calls. */
interface Followed {
    shown: (shown: Shown) => void;
    found: (replies: readonly Reply[]) => void;
}

interface Step {
    /** Age of the newest picture, in milliseconds. `null`: unknown. */
    ageMs: number | null;
    /** Whether the edge may have more video. Then the next request is sent at once. */
    hasMore: boolean;
}

/** Requests and shows the next picture or video of a camera. `undefined`: nothing new has come. */
type Next = (signal: AbortSignal) => Promise<Step | undefined>;

/** Shows pictures that the edge made. */
function pictures(path: string, canvas: HTMLCanvasElement): Next {
    let etag: string | null = null;
    return async (signal) => {
        const next = await picture(path, etag, signal);
        if (!next) return undefined;
        draw(canvas, await createImageBitmap(next.jpeg));
        etag = next.etag;
        return { ageMs: next.ageMs, hasMore: false };
    };
}

/** Decodes and shows video. If this browser cannot decode it, uses `otherwise`. */
function played(camera: string, player: Player, otherwise: Next): Next {
    let last: string | null = null;
    return async (signal) => {
        if (player.failures >= FAILURES_MAX) return otherwise(signal);
        const next = await video(camera, last, signal);
        if (!next) return undefined;
        try {
            await player.take(next.frames);
            last = next.last;
        } catch {
            // The next request asks for the whole chain.
            last = null;
            return undefined;
        }
        const bytes = next.frames.reduce((sum, frame) => sum + frame.bytes.length, 0);
        return { ageMs: next.ageMs, hasMore: bytes >= LARGE_BYTES };
    };
}

async function follow(camera: string, next: Next, tell: Followed, signal: AbortSignal): Promise<void> {
    const boxes = new BoxesAsked(camera);
    while (!signal.aborted) {
        const beganMs = performance.now();
        let waitMs = PICTURE_MS;
        try {
            const step = await next(signal);
            if (step !== undefined) tell.shown({ ageMs: step.ageMs, atMs: performance.now() });
            if (step?.hasMore) waitMs = 0;
            tell.found(await boxes.ask());
        } catch {
            // The edge refused or is away, or the bytes are not a picture. `live.ts` reports an edge that is away. The shown age increases.
            waitMs = RETRY_MS;
        }
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, beganMs + waitMs - performance.now())));
    }
}

/** Requests replies to a camera's frames: with each picture while applications reply, else every 2 s, and never again after a refusal. */
class BoxesAsked {
    readonly #camera: string;
    #nextMs = 0;
    #last: readonly Reply[] = NOTHING_FOUND;

    constructor(camera: string) {
        this.#camera = camera;
    }

    async ask(): Promise<readonly Reply[]> {
        if (performance.now() < this.#nextMs) return this.#last;
        try {
            const { replies: all } = await replies(this.#camera);
            const fresh = all.filter((reply) => reply.since_ms < FOUND_LASTS_MS);
            this.#last = fresh.length === 0 ? NOTHING_FOUND : fresh;
            this.#nextMs = fresh.length === 0 ? performance.now() + RETRY_MS : 0;
        } catch (error) {
            if (!(error instanceof RefusedError)) throw error;
            this.#last = NOTHING_FOUND;
            this.#nextMs = Infinity;
        }
        return this.#last;
    }
}

export function draw(canvas: HTMLCanvasElement, bitmap: ImageBitmap): void {
    if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
        canvas.width = bitmap.width;
        canvas.height = bitmap.height;
    }
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
    bitmap.close();
}

/** Class and tracker number of an object: "person 7". */
const nameOf = ({ class_name, tracker_id }: Pick<Found, "class_name" | "tracker_id">): string =>
    [class_name, tracker_id ?? ""].join(" ").trim();

/** Boxes and names over the picture, in the pixels of the published frame. Screen readers get the picture's label instead. */
export function Boxes({ replies }: { replies: readonly Reply[] }) {
    return (
        <>
            {replies.map(({ application, width, height, detections }) => (
                <svg key={application} class="boxes" viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
                    {detections.map(({ xyxy: [x1 = 0, y1 = 0, x2 = 0, y2 = 0], ...box }, at) => (
                        <g key={at}>
                            <rect x={x1} y={y1} width={x2 - x1} height={y2 - y1} />
                            <text x={x1} y={Math.max(y1 - height / 80, height / 16)} font-size={height / 16}>
                                {nameOf(box)}
                            </text>
                        </g>
                    ))}
                </svg>
            ))}
        </>
    );
}

/** Replies in words: "; counter found person, person". */
export function foundInWords(replies: readonly Reply[]): string {
    return replies
        .map(
            ({ application, found, detections }) => `; ${application} found ${found === 0 ? "nothing" : detections.map(nameOf).join(", ")}`,
        )
        .join("");
}

/** The text in place of a picture. */
function missing({ picture: path, connected, newest }: Camera): string {
    if (!connected) return "no picture: not connected";
    if (newest?.encoding === "data") return "data records, no pictures";
    return path === null ? "no picture" : "waiting for a picture";
}

export function Picture({ camera }: { camera: Camera }) {
    const frame = useRef<HTMLDivElement>(null);
    const canvas = useRef<HTMLCanvasElement>(null);
    const [shown, setShown] = useState<Shown | null>(null);
    const [found, setFound] = useState(NOTHING_FOUND);
    const seen = useSeen(frame);
    const path = camera.picture;
    const isVideo = useDecodesVideo() && camera.newest?.encoding === "h264";

    useEffect(() => {
        if (!seen || path === null || !canvas.current) return;
        const stop = new AbortController();
        const player = new Player(canvas.current);
        const made = pictures(path, canvas.current);
        const next = isVideo ? played(camera.name, player, made) : made;
        void follow(camera.name, next, { shown: setShown, found: setFound }, stop.signal);
        return () => {
            stop.abort();
            player.close();
        };
    }, [seen, camera.name, path, isVideo]);

    const age = ageOf(shown);
    const none = missing(camera);
    const alt = shown ? `Newest picture of ${camera.name}${foundInWords(found)}` : `${camera.name}: ${none}`;
    return (
        <div class="picture" ref={frame}>
            <canvas ref={canvas} width={16} height={9} role="img" aria-label={alt} hidden={shown === null} />
            {shown !== null && <Boxes replies={found} />}
            {shown === null && <span class="none">{none}</span>}
            {age !== null && (
                <span class={`age ${age > 2_000 ? "old" : ""}`} title="Age: time since the picture was captured">
                    {units.milliseconds(age)}
                </span>
            )}
        </div>
    );
}
