/** The past of one camera: what is held and what is missing, a picture at any instant, and playback. */

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import * as client from "../api/client.ts";
import type { Held, Note } from "../api/types.ts";
import { PastPicture } from "../parts/PastPicture.tsx";
import { PastRecords, RecordAt } from "../parts/PastRecords.tsx";
import { usePage } from "../parts/use.ts";
import {
    allNotes,
    atCamera,
    holeAt,
    isAtCamera,
    piece,
    playedFrom,
    spanAt,
    unsurveyed,
    type Stretches,
    type Unsurveyed,
} from "../state/past.ts";
import { cameraHref } from "../state/route.ts";
import { standing, total } from "../words/held.ts";
import { cameraHoleInWords, CONTRACT, holeInWords, SOURCE } from "../words/states.ts";
import * as units from "../words/units.ts";

const MINUTE_MS = 60_000;
/** Spans that can be shown at once: the edge surveys a day at most. */
const LENGTHS: readonly [number, string][] = [
    [10 * MINUTE_MS, "10 minutes"],
    [60 * MINUTE_MS, "1 hour"],
    [6 * 60 * MINUTE_MS, "6 hours"],
    [24 * 60 * MINUTE_MS, "24 hours"],
];
/** Speeds of playback. */
const SPEEDS = [1, 2, 4] as const;
/** How often playback moves on. */
const STEP_MS = 200;
/** What the edge calls past. */
const PAST_MS = 3_500;
/** Notes are asked for in pieces of this length. Replies come some seconds after their frame. */
const NOTES_MS = 10_000;
const REPLY_MS = 5_000;
/** What was said around an instant, and whether there is more than was read. */
interface Heard {
    notes: readonly Note[];
    more: boolean;
}
const NOTHING: Heard = { notes: [], more: false };
/** The longest clip is five minutes. */
const CLIPS: readonly [number, string][] = [
    [30_000, "30 seconds"],
    [MINUTE_MS, "1 minute"],
    [5 * MINUTE_MS, "5 minutes"],
];
const TOO_MANY = "There are too many frames";
/** The most holes, and the most notes, that are listed. */
const LISTED_MAX = 50;

export function History({ name }: { name: string }) {
    const nowMs = usePage((page) => page.cameras?.now_utc_ms ?? null);
    const [length, setLength] = useState(LENGTHS[0]![0]);
    // The end of what is shown stays where it is until somebody moves it.
    const [end, setEnd] = useState<number | null>(null);
    useEffect(() => {
        if (end === null && nowMs !== null) setEnd(nowMs - PAST_MS);
    }, [end, nowMs]);
    return (
        <article class="history">
            <header class="tools">
                <h1>History of {name}</h1>
                <a href={cameraHref(name)}>Now</a>
                <label>
                    Show{" "}
                    <select value={length} onChange={(event) => setLength(Number(event.currentTarget.value))}>
                        {LENGTHS.map(([ms, words]) => (
                            <option key={ms} value={ms}>
                                {words}
                            </option>
                        ))}
                    </select>
                </label>
                <button type="button" disabled={end === null} onClick={() => setEnd(end! - length)}>
                    Earlier
                </button>
                <button
                    type="button"
                    disabled={end === null || nowMs === null || end >= nowMs - 2 * PAST_MS}
                    onClick={() => setEnd(Math.min(nowMs! - PAST_MS, end! + length))}
                >
                    Later
                </button>
                <button type="button" disabled={nowMs === null} onClick={() => setEnd(nowMs! - PAST_MS)}>
                    Up to now
                </button>
            </header>
            {end !== null && <Span name={name} since={end - length} until={end} />}
        </article>
    );
}

/** One span, once the edge has said what it holds of it. */
function Span({ name, since, until }: { name: string; since: number; until: number }) {
    const [held, setHeld] = useState<Held | null>(null);
    const [failed, setFailed] = useState<string | null>(null);
    useEffect(() => {
        const stop = new AbortController();
        setFailed(null);
        client.held(name, { since_utc_ms: since, until_utc_ms: until }, stop.signal).then(setHeld, (error: unknown) => {
            if (!stop.signal.aborted) setFailed(error instanceof Error ? error.message : String(error));
        });
        return () => stop.abort();
    }, [name, since, until]);
    if (failed !== null) return <p role="alert">{failed}</p>;
    if (!held) return <p role="status">Asking the edge what it holds…</p>;
    return <Player key={held.since_utc_ms} name={name} held={held} />;
}

function Player({ name, held }: { name: string; held: Held }) {
    const last = held.spans.at(-1)?.to_utc_ms;
    const [at, setAt] = useState(() => last ?? held.since_utc_ms);
    const [speed, setSpeed] = useState<number>(1);
    const [playing, setPlaying] = usePlayback(held, speed, setAt);
    const { notes, more } = useNotes(name, held, at);
    const camera = usePage((page) => page.cameras)?.cameras.find((known) => known.name === name);
    const span = spanAt(held, at);
    const hole = holeAt(held, at);
    const ofCamera = atCamera(held);
    const there = useMemo(() => standing(held, at), [held, at]);
    const move = (to: number): void => setAt(Math.min(held.until_utc_ms, Math.max(held.since_utc_ms, to)));
    return (
        <>
            <div class="now">
                {camera?.newest?.encoding === "data" ? (
                    <div class="made">
                        <RecordAt name={name} at={at} />
                    </div>
                ) : (
                    <PastPicture name={name} at={at} has={span !== undefined || isAtCamera(held, at)} none={there} notes={notes} />
                )}
                <section aria-labelledby="instant">
                    <h2 id="instant">{instantInWords(at)}</h2>
                    <p>{there}</p>
                    <div class="tools">
                        <button type="button" onClick={() => setPlaying(!playing)}>
                            {playing ? "Pause" : "Play"}
                        </button>
                        <label>
                            Speed{" "}
                            <select value={speed} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
                                {SPEEDS.map((times) => (
                                    <option key={times} value={times}>
                                        {times}×
                                    </option>
                                ))}
                            </select>
                        </label>
                        {hole && (
                            <button type="button" onClick={() => move(hole.to_utc_ms)}>
                                Behind the hole
                            </button>
                        )}
                    </div>
                    {held.stored && <Clip name={name} at={at} until={held.until_utc_ms} />}
                </section>
            </div>
            <PastRecords name={name} at={at} />
            <Slider held={held} at={at} there={there} move={move} />
            <Missing
                id="missing"
                title="What is missing"
                of={held}
                why={holeInWords}
                move={move}
                until={unsurveyed(held, held.surveyed_until_utc_ms)?.from_utc_ms}
            />
            {ofCamera && (
                <Missing
                    id="camera-missing"
                    title="What the camera itself lacks"
                    of={ofCamera}
                    why={cameraHoleInWords}
                    move={move}
                    until={unsurveyed(held, held.camera_surveyed_until_utc_ms)?.from_utc_ms}
                />
            )}
            <Said notes={notes} more={more} move={move} />
        </>
    );
}

/** Moves the instant on while it plays: over what nobody holds, and not in a page that nobody sees. */
function usePlayback(held: Held, speed: number, setAt: (change: (at: number) => number) => void): [boolean, (playing: boolean) => void] {
    const [playing, setPlaying] = useState(false);
    useEffect(() => {
        if (!playing) return;
        let lastMs = performance.now();
        const step = (): void => {
            const nowMs = performance.now();
            const passed = (nowMs - lastMs) * speed;
            lastMs = nowMs;
            setAt((at) => {
                const next = playedFrom(held, at + passed);
                if (next === null) setPlaying(false);
                return next ?? held.until_utc_ms;
            });
        };
        const timer = setInterval(step, STEP_MS);
        const hide = (): void => {
            if (document.hidden) setPlaying(false);
        };
        document.addEventListener("visibilitychange", hide);
        return () => {
            clearInterval(timer);
            document.removeEventListener("visibilitychange", hide);
        };
    }, [playing, speed, held]);
    return [playing, setPlaying];
}

/** What was said of the frames around an instant. */
function useNotes(name: string, held: Held, at: number): Heard {
    const [said, setSaid] = useState<Heard>(NOTHING);
    const begin = Math.floor(at / NOTES_MS) * NOTES_MS;
    useEffect(() => {
        if (!held.stored) return;
        const stop = new AbortController();
        const span = { since_utc_ms: begin - REPLY_MS, until_utc_ms: begin + NOTES_MS + REPLY_MS };
        const page = (after?: string) => client.notes(name, after === undefined ? span : { ...span, after }, stop.signal);
        allNotes(page).then(setSaid, () => {
            // An edge that keeps no notes has none to show.
            if (!stop.signal.aborted) setSaid(NOTHING);
        });
        return () => stop.abort();
    }, [name, held.stored, begin]);
    return said;
}

function instantInWords(at: number): string {
    const moment = new Date(at);
    return `${moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${units.timeOfDay(at)}`;
}

interface SliderProps {
    held: Held;
    at: number;
    there: string;
    move: (to: number) => void;
}

/** What is held, as bars; and the instant, to be moved by pointer or keys. */
function Slider({ held, at, there, move }: SliderProps) {
    const [camera, cameraFrom] = [atCamera(held), held.camera_from_utc_ms];
    return (
        <section aria-labelledby="held" class="held">
            <h2 id="held">What is held</h2>
            <div class="bars">
                <span>Edge</span>
                <Bar held={held} of={held} why={holeInWords} />
                <span>Camera</span>
                {camera ? (
                    <Bar held={held} of={camera} why={cameraHoleInWords} unsurveyed={unsurveyed(held, held.camera_surveyed_until_utc_ms)} />
                ) : (
                    <div class="bar" aria-hidden="true">
                        {cameraFrom !== null && (
                            <i
                                class="span"
                                style={placed(held, { from_utc_ms: cameraFrom, to_utc_ms: held.until_utc_ms })}
                                title="The camera has said no more than from when on it holds frames."
                            />
                        )}
                    </div>
                )}
                <span>Time</span>
                <input
                    type="range"
                    aria-label="Instant"
                    aria-valuetext={`${instantInWords(at)}. ${there}`}
                    min={held.since_utc_ms}
                    max={held.until_utc_ms}
                    step={1}
                    value={at}
                    onInput={(event) => move(Number(event.currentTarget.value))}
                    onKeyDown={(event) => byKey(event, at, move)}
                />
            </div>
            <p class="ends">
                <span>{instantInWords(held.since_utc_ms)}</span>
                <span>{instantInWords(held.until_utc_ms)}</span>
            </p>
            <p class="hint">Arrow keys move by a second, with Shift by ten; Page Up and Page Down by a minute.</p>
        </section>
    );
}

interface BarProps {
    held: Held;
    of: Stretches;
    /** The words for the reason of a hole. */
    why: (reason: string) => string;
    /** What it has not surveyed, but may hold. */
    unsurveyed?: Unsurveyed | null;
}

/** What somebody holds, as a bar. */
function Bar({ held, of, why, unsurveyed = null }: BarProps) {
    // If the camera's clock was set back, two of them may begin at the same time.
    return (
        <div class="bar" aria-hidden="true">
            {of.holes.map((hole, place) => (
                <i
                    key={`hole ${place}`}
                    class="hole"
                    style={placed(held, hole)}
                    title={`${units.timeOfDay(hole.from_utc_ms)} to ${units.timeOfDay(hole.to_utc_ms)}: ${why(hole.reason)}`}
                />
            ))}
            {of.spans.map((span, place) => (
                <i key={`span ${place}`} class="span" style={placed(held, span)} title={units.counted(span.frames, "frame")} />
            ))}
            {unsurveyed && (
                <i class="span" style={placed(held, unsurveyed)} title={`${TOO_MANY} to say what is held here; show a shorter span.`} />
            )}
        </div>
    );
}

/** Steps of keys, in milliseconds. */
function byKey(event: JSX.TargetedKeyboardEvent<HTMLInputElement>, at: number, move: (to: number) => void): void {
    const step = event.shiftKey ? 10_000 : 1_000;
    const steps: Record<string, number> = {
        ArrowLeft: -step,
        ArrowDown: -step,
        ArrowRight: step,
        ArrowUp: step,
        PageDown: -MINUTE_MS,
        PageUp: MINUTE_MS,
    };
    const by = steps[event.key];
    if (by === undefined) return;
    event.preventDefault();
    move(at + by);
}

function placed(held: Held, { from_utc_ms: from, to_utc_ms: to }: { from_utc_ms: number; to_utc_ms: number }): JSX.CSSProperties {
    const { left, width } = piece(from, to, held);
    return { left: `${left * 100}%`, width: `max(2px, ${width * 100}%)` };
}

interface MissingProps {
    id: string;
    title: string;
    of: Stretches;
    why: (reason: string) => string;
    move: (to: number) => void;
    /** Up to where it was surveyed, if not to the end. */
    until?: number | undefined;
}

/** The holes in words. */
function Missing({ id, title, of, why, move, until }: MissingProps) {
    const holes = of.holes.slice(0, LISTED_MAX);
    const rest = of.holes.length - holes.length;
    return (
        <section aria-labelledby={id}>
            <h2 id={id}>{title}</h2>
            {holes.length === 0 && <p>Nothing for longer than a moment.</p>}
            <ul class="events">
                {holes.map((hole, place) => (
                    <li key={place}>
                        <button type="button" class="quiet" onClick={() => move(hole.from_utc_ms)}>
                            {units.timeOfDay(hole.from_utc_ms)}
                        </button>
                        <span>
                            {units.duration((hole.to_utc_ms - hole.from_utc_ms) / 1000)}: {why(hole.reason)}
                            {total(hole.skipped) > 0 && ` (${units.counted(total(hole.skipped), "frame")})`}
                        </span>
                    </li>
                ))}
            </ul>
            {rest > 0 && <p>And {units.counted(rest, "more hole")}; show a shorter span.</p>}
            {until !== undefined && (
                <p>
                    {TOO_MANY} to say what is missing after {units.timeOfDay(until)}; show a shorter span.
                </p>
            )}
        </section>
    );
}

/** Changes of contracts and of the source around the instant. */
function Said({ notes, more, move }: Heard & { move: (to: number) => void }) {
    const all = notes.filter((note) => note.kind !== "reply");
    const changes = all.slice(0, LISTED_MAX);
    if (changes.length === 0 && !more) return null;
    return (
        <section aria-labelledby="said">
            <h2 id="said">What changed around this time</h2>
            <ul class="events">
                {changes.map((note, place) => (
                    <li key={place}>
                        <button type="button" class="quiet" onClick={() => move(note.at_utc_ms)}>
                            {units.timeOfDay(note.at_utc_ms)}
                        </button>
                        <span>{changeInWords(note)}</span>
                    </li>
                ))}
            </ul>
            {(more || all.length > changes.length) && (
                <p>More was said around this time than is shown here; choose an instant nearby, or ask the API for all notes.</p>
            )}
        </section>
    );
}

function changeInWords({ kind, application, state, sentence }: Note): string {
    const words: Record<string, { word: string }> = kind === "contract" ? CONTRACT : SOURCE;
    const word = words[state ?? ""]?.word ?? state;
    const what = kind === "contract" ? `contract of ${application || "an application"}: ${word}` : `source: ${word}`;
    return sentence === "" ? what : `${what}; ${sentence}`;
}

/** A link to a file, from the instant on; near the end, of the last that there is. */
function Clip({ name, at, until }: { name: string; at: number; until: number }) {
    const [length, setLength] = useState(CLIPS[0]![0]);
    const since = Math.min(at, until - length);
    return (
        <p class="tools">
            <label>
                Clip of{" "}
                <select value={length} onChange={(event) => setLength(Number(event.currentTarget.value))}>
                    {CLIPS.map(([ms, words]) => (
                        <option key={ms} value={ms}>
                            {words}
                        </option>
                    ))}
                </select>
            </label>
            <a href={client.clipHref(name, { since_utc_ms: since, until_utc_ms: since + length })} target="_blank" rel="noreferrer">
                from here, as MP4
            </a>
        </p>
    );
}
