/** A picture of the past, with the boxes that applications replied. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import { instant, type PastPicture as Picture } from "../api/client.ts";
import type { Note } from "../api/types.ts";
import { repliesOn } from "../state/past.ts";
import * as units from "../words/units.ts";
import { Boxes, draw, foundInWords } from "./Picture.tsx";
import { useNewestAnswer } from "./use.ts";

/** How long after the instant a frame may have been captured, in milliseconds. So longer pauses between frames show no picture. */
export const WITHIN_MS = 2_000;

type Shown = Picture & { image: ImageBitmap };

interface PastPictureProps {
    name: string;
    /** The instant, in milliseconds since 1970. */
    at: number;
    /** Whether the edge or the camera may have a frame of this time. */
    has: boolean;
    /** The text for screen readers if there is no picture. */
    none: string;
    notes: readonly Note[];
}

export function PastPicture({ name, at, has, none, notes }: PastPictureProps) {
    const canvas = useRef<HTMLCanvasElement>(null);
    const answered = useNewestAnswer<Shown>(has ? at : null, async (at_utc_ms, signal) => {
        const picture = await instant(name, { at_utc_ms, within_ms: WITHIN_MS }, signal);
        return picture && { ...picture, image: await createImageBitmap(picture.jpeg) };
    });
    const shown = answered.is === "there" ? answered.answer : null;
    useEffect(() => {
        if (shown && canvas.current) draw(canvas.current, shown.image);
    }, [shown]);

    const replies = useMemo(() => (shown ? repliesOn(shown, notes) : []), [shown, notes]);
    const alt = shown ? `${name} at ${units.timeOfDay(shown.capturedMs)}${foundInWords(replies)}` : `${name}: ${none}`;
    return (
        <div class="picture">
            <canvas ref={canvas} width={16} height={9} role="img" aria-label={alt} hidden={shown === null} />
            {shown !== null && <Boxes replies={replies} />}
            {shown === null && <span class="none">{has ? "no picture of this time" : "no frames of this time"}</span>}
            {shown !== null && (
                <span class="age" title={`Capture time; rung ${shown.rung}`}>
                    {units.timeOfDay(shown.capturedMs)}
                </span>
            )}
        </div>
    );
}
