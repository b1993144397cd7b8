/** A state: a sign, a word and a colour that say the same. */

import type { Level } from "../words/states.ts";

const SIGNS: Record<Level, string> = {
    good: "M3 8.5 6.5 12 13 4.5",
    warn: "M8 2.5 14.5 13.5H1.5ZM8 6.5v3.2M8 11.6v.1",
    bad: "M4 4l8 8M12 4l-8 8",
    off: "M4 8h8",
};

export function Sign({ level }: { level: Level }) {
    return (
        <svg class={`sign ${level}`} viewBox="0 0 16 16" aria-hidden="true">
            <path d={SIGNS[level]} />
        </svg>
    );
}

export function Badge({ level, word, title }: { level: Level; word: string; title?: string }) {
    return (
        <span class={`badge ${level}`} title={title}>
            <Sign level={level} />
            {word}
        </span>
    );
}
