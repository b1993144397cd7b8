/** Rungs in words. The grammar of their names is in crates/core/src/setting/mod.rs. */

const CODECS: Record<string, string> = {
    h264: "H.264 video",
    jpeg: "JPEG",
    tiles: "JPEG of changed tiles",
    knobs: "a still with the knobs of the Mez paper",
};

const COLOURS: Record<string, string> = { gray: "grey", "420": "a quarter of the colour samples", "422": "half of the colour samples" };

/** `h264/w512/q40` → "H.264 video, 512 pixels wide, quantiser 40 of 51 (lower is finer)". Returns an unknown name unchanged. */
export function rungInWords(rung: string): string {
    if (rung === "original") return "as published";
    const [codec = "", ...knobs] = rung.split("/");
    const name = CODECS[codec];
    if (!name) return rung;
    const words = knobs.map((knob) => knobInWords(codec, knob)).filter((word) => word !== "");
    return [name, ...words].join(", ");
}

function knobInWords(codec: string, knob: string): string {
    const [, letters = "", number = ""] = /^([a-z]+)(\d+)$/.exec(knob) ?? [];
    if (letters === "w") return `${number} pixels wide`;
    if (letters === "q") return codec === "h264" ? `quantiser ${number} of 51 (lower is finer)` : `quality ${number} of 100`;
    if (letters === "skip") return `1 of ${Number(number) + 1} frames`;
    if (letters === "s" && codec === "knobs") return `${number} % of the width`;
    return COLOURS[knob] ?? (knob === "444" ? "" : knob);
}

/** Orders rungs by width, codec and quality, the finest last. Codecs cannot be compared, so rungs of one width are grouped by codec. */
export function byFineness(one: string, other: string): number {
    const [a, b] = [rankOf(one), rankOf(other)];
    return a.width - b.width || a.codec.localeCompare(b.codec) || a.quality - b.quality || one.localeCompare(other);
}

function rankOf(rung: string): { width: number; codec: string; quality: number } {
    const [codec = "", ...knobs] = rung.split("/");
    const numberOf = (letter: string): number | undefined => {
        const knob = knobs.find((one) => new RegExp(`^${letter}\\d+$`).test(one));
        return knob === undefined ? undefined : Number(knob.slice(1));
    };
    // A rung without a width has the published width. Of these rungs, `original` is the finest.
    const width = rung === "original" ? Number.MAX_SAFE_INTEGER : (numberOf("w") ?? 1 << 20);
    const q = numberOf("q") ?? 0;
    return { width, codec, quality: codec === "h264" ? -q : q };
}
