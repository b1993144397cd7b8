/** Records and pictures of a camera's derived streams, at an instant of the past. */

import { Fragment } from "preact";
import { useMemo } from "preact/hooks";

import * as client from "../api/client.ts";
import type { Camera, PastRecord } from "../api/types.ts";
import { historyHref } from "../state/route.ts";
import { readable } from "../words/record.ts";
import * as units from "../words/units.ts";
import { PastPicture, WITHIN_MS } from "./PastPicture.tsx";
import { type Answered, useNewestAnswer, usePage } from "./use.ts";

/** Maximum number of streams that are shown, because each needs its own requests. The others are only named. */
const STREAMS_MAX = 4;

export function PastRecords({ name, at }: { name: string; at: number }) {
    const cameras = usePage((page) => page.cameras?.cameras);
    const streams = (cameras ?? []).filter((camera) => camera.derived_from.includes(name));
    if (streams.length === 0) return null;
    const rest = streams.slice(STREAMS_MAX);
    return (
        <section aria-labelledby="made">
            <h2 id="made">Derived streams</h2>
            <div class="columns">
                {streams.slice(0, STREAMS_MAX).map((stream) => (
                    <article key={stream.name} class="made">
                        <h3>
                            <a href={historyHref(stream.name)}>{stream.name}</a>
                        </h3>
                        {stream.newest?.encoding === "data" ? <RecordAt name={stream.name} at={at} /> : <Made stream={stream} at={at} />}
                    </article>
                ))}
            </div>
            {rest.length > 0 && (
                <p>
                    Also:{" "}
                    {rest.map((stream, place) => (
                        <Fragment key={stream.name}>
                            {place > 0 && ", "}
                            <a href={historyHref(stream.name)}>{stream.name}</a>
                        </Fragment>
                    ))}
                </p>
            )}
        </section>
    );
}

/** A stream of pictures, such as crops. */
function Made({ stream, at }: { stream: Camera; at: number }) {
    return <PastPicture name={stream.name} at={at} has={true} none="no picture of this time" notes={[]} />;
}

/** The record of an instant, as text. */
export function RecordAt({ name, at }: { name: string; at: number }) {
    const answered = useNewestAnswer(at, (at_utc_ms, signal) => client.record(name, { at_utc_ms, within_ms: WITHIN_MS }, signal));
    const record = answered.is === "there" ? answered.answer : null;
    const text = useMemo(() => (record?.text == null ? null : readable(record.text)), [record?.text]);
    if (record === null) return <p>{missing(answered)}</p>;
    return (
        <>
            <p>
                {units.timeOfDay(record.captured_utc_ms)}
                {record.of && `, from frame ${record.of.sequence.toLocaleString("en")}`}; {record.content_type}, {units.bytes(record.bytes)}
            </p>
            {text === null ? (
                <p>The record is not text, or is too long to be shown.</p>
            ) : (
                <pre tabIndex={0} role="region" aria-label={`Record of ${name}`}>
                    {text}
                </pre>
            )}
        </>
    );
}

function missing(answered: Answered<NonNullable<PastRecord>>): string {
    if (answered.is === "failed") return `The edge returned no record: ${answered.why}`;
    return answered.is === "asking" ? "Asking the edge…" : "The edge has no record of this time.";
}
