/** A picture of the past, with what applications replied to it. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { instant } from "../api/client.ts";
import type { Note } from "../api/types.ts";
import { repliesOn, type ShownFrame } from "../state/past.ts";
import * as units from "../words/units.ts";
import { Boxes, draw, foundInWords } from "./Picture.tsx";

/** How long behind the instant a frame may be. Cameras of fewer frames are shown at their frames. */
const WITHIN_MS = 2_000;

interface PastPictureProps {
    name: string;
    /** The instant, in milliseconds since 1970. */
    at: number;
    /** Whether anybody may hold it. */
    has: boolean;
    /** What is said if there is none. */
    none: string;
    notes: readonly Note[];
}

export function PastPicture({ name, at, has, none, notes }: PastPictureProps) {
    const canvas = useRef<HTMLCanvasElement>(null);
    const wanted = useRef<number | null>(null);
    const held = useRef(has);
    held.current = has;
    const asking = useRef(false);
    const over = useRef(new AbortController());
    const [shown, setShown] = useState<(ShownFrame & { rung: string }) | null>(null);

    // One request at a time: while a picture is made, the instant moves on, and the newest one is asked for next.
    const askOn = async (): Promise<void> => {
        if (asking.current) return;
        asking.current = true;
        const { signal } = over.current;
        while (wanted.current !== null && !signal.aborted) {
            const next = wanted.current;
            wanted.current = null;
            try {
                const picture = await instant(name, { at_utc_ms: next, within_ms: WITHIN_MS }, signal);
                if (!held.current) continue;
                const image = picture && (await createImageBitmap(picture.jpeg));
                // The instant may have moved to where nothing is held meanwhile.
                if (!held.current) continue;
                if (image && canvas.current) draw(canvas.current, image);
                setShown(picture);
            } catch {
                // Refused or away: `live.ts` says if the edge is away.
                if (!signal.aborted) setShown(null);
            }
        }
        asking.current = false;
    };
    useEffect(() => {
        wanted.current = has ? at : null;
        if (has) void askOn();
        else setShown(null);
    }, [at, has]);
    useEffect(() => () => over.current.abort(), []);

    const replies = useMemo(() => (shown ? repliesOn(shown, notes) : []), [shown, notes]);
    const alt = shown ? `${name} at ${units.timeOfDay(shown.capturedMs)}${foundInWords(replies)}` : `${name}: ${none}`;
    return (
        <div class="picture">
            <canvas ref={canvas} width={16} height={9} role="img" aria-label={alt} hidden={shown === null} />
            {shown !== null && <Boxes replies={replies} />}
            {shown === null && <span class="none">{has ? "no picture here" : "nothing is held here"}</span>}
            {shown !== null && (
                <span class="age" title={`Captured then; ${shown.rung}`}>
                    {units.timeOfDay(shown.capturedMs)}
                </span>
            )}
        </div>
    );
}
