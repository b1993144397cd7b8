/** The past of one camera: bars of its frames and holes, a picture at any instant, and playback. */

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
/** Lengths of the shown span. The edge surveys at most a day. */
const LENGTHS: readonly [number, string][] = [
    [10 * MINUTE_MS, "10 minutes"],
    [60 * MINUTE_MS, "1 hour"],
    [6 * 60 * MINUTE_MS, "6 hours"],
    [24 * 60 * MINUTE_MS, "24 hours"],
];
/** Speeds of playback. */
const SPEEDS = [1, 2, 4] as const;
/** Interval between steps of playback. */
const STEP_MS = 200;
/** Frames count as past after 3 s at the edge. This is a little longer. */
const PAST_MS = 3_500;
/** Notes are requested in pieces of this length. */
const NOTES_MS = 10_000;
/** Each piece is longer by this time at both ends, because replies come some seconds after their frame. */
const REPLY_MS = 5_000;
/** Notes around an instant. `more`: there are more than were read. */
interface Heard {
    notes: readonly Note[];
    more: boolean;
}
const NOTHING: Heard = { notes: [], more: false };
/** Lengths of clips. The edge makes clips of at most five minutes. */
const CLIPS: readonly [number, string][] = [
    [30_000, "30 seconds"],
    [MINUTE_MS, "1 minute"],
    [5 * MINUTE_MS, "5 minutes"],
];
const TOO_MANY = "There are too many frames";
/** Maximum number of holes, and of notes, in a list. */
const LISTED_MAX = 50;

export function History({ name }: { name: string }) {
    const nowMs = usePage((page) => page.cameras?.now_utc_ms ?? null);
    const [length, setLength] = useState(LENGTHS[0]![0]);
    // The end of the shown span stays the same until a button moves it.
    const [end, setEnd] = useState<number | null>(null);
    useEffect(() => {
        if (end === null && nowMs !== null) setEnd(nowMs - PAST_MS);
    }, [end, nowMs]);
    return (
        <article class="history">
            <header class="tools">
                <h1>History of {name}</h1>
                <a href={cameraHref(name)}>Live view</a>
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
                    Latest
                </button>
            </header>
            {end !== null && <Span name={name} since={end - length} until={end} />}
        </article>
    );
}

/** Requests the spans and holes of a time span from the edge, and shows them. */
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
    if (!held) return <p role="status">Loading the history…</p>;
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
                                Skip this hole
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
                title="Missing at the edge"
                of={held}
                why={holeInWords}
                move={move}
                until={unsurveyed(held, held.surveyed_until_utc_ms)?.from_utc_ms}
            />
            {ofCamera && (
                <Missing
                    id="camera-missing"
                    title="Missing at the camera"
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

/** Playback: moves the instant, skips times without frames, and stops when the page is hidden. */
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

/** Requests the notes about frames around an instant. */
function useNotes(name: string, held: Held, at: number): Heard {
    const [said, setSaid] = useState<Heard>(NOTHING);
    const begin = Math.floor(at / NOTES_MS) * NOTES_MS;
    useEffect(() => {
        if (!held.stored) return;
        const stop = new AbortController();
        const span = { since_utc_ms: begin - REPLY_MS, until_utc_ms: begin + NOTES_MS + REPLY_MS };
        const page = (after?: string) => client.notes(name, after === undefined ? span : { ...span, after }, stop.signal);
        allNotes(page).then(setSaid, () => {
            // An edge without notes has none to show.
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

/** Bars that show spans and holes, and a slider for the instant, moved by pointer or keys. */
function Slider({ held, at, there, move }: SliderProps) {
    const [camera, cameraFrom] = [atCamera(held), held.camera_from_utc_ms];
    return (
        <section aria-labelledby="held" class="held">
            <h2 id="held">Available frames</h2>
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
                                title="The camera reported only the time of its oldest frame."
                            />
                        )}
                    </div>
                )}
                <span>Time</span>
                <input
                    type="range"
                    aria-label="Time"
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
    /** Returns the reason of a hole in words. */
    why: (reason: string) => string;
    /** The part that was not surveyed, and may have frames. */
    unsurveyed?: Unsurveyed | null;
}

/** The spans and holes of the edge or the camera, as a bar. */
function Bar({ held, of, why, unsurveyed = null }: BarProps) {
    // Places are keys, because two spans may begin at the same time if the camera's clock was set back.
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
                <i class="span" style={placed(held, unsurveyed)} title={`${TOO_MANY} to examine this time; choose a shorter span.`} />
            )}
        </div>
    );
}

/** Moves the instant by keys. */
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
    /** End of the survey, if it does not cover the whole span. */
    until?: number | undefined;
}

/** A list of holes with their reasons. */
function Missing({ id, title, of, why, move, until }: MissingProps) {
    const holes = of.holes.slice(0, LISTED_MAX);
    const rest = of.holes.length - holes.length;
    return (
        <section aria-labelledby={id}>
            <h2 id={id}>{title}</h2>
            {holes.length === 0 && <p>There are no holes. Short pauses are not listed.</p>}
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
            {rest > 0 && <p>Not listed: {units.counted(rest, "more hole")}. Choose a shorter span.</p>}
            {until !== undefined && (
                <p>
                    {TOO_MANY} to examine the time after {units.timeOfDay(until)}; choose a shorter span.
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
            <h2 id="said">Changes around this time</h2>
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
                <p>Not all notes around this time are shown. Choose a time nearby, or request all notes from the API.</p>
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

/** A link to a clip that begins at the instant. Near the end of the span, the clip ends with the span. */
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
