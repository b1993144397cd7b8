/** Numbers as text: about three digits, a unit, and a dash for an unknown value. */

/** Stands for an unknown value. */
export const UNKNOWN = "–";

type Maybe = number | null | undefined;

/** A number with about three significant digits: 1234 → "1,234", 12.34 → "12.3", 0.1234 → "0.12". */
export function plain(value: number): string {
    const size = Math.abs(value);
    const digits = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2;
    return value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: digits });
}

function scaled(value: Maybe, step: number, units: readonly string[]): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
    let rest = value;
    let unit = 0;
    // `plain` would round 999.5 to 1,000.
    while (Math.abs(rest) >= step - 0.5 && unit < units.length - 1) {
        rest /= step;
        unit += 1;
    }
    return `${plain(rest)} ${units[unit]}`;
}

/** Bits per second: "2.4 Mbit/s". */
export const bitRate = (bitsPerSecond: Maybe): string => scaled(bitsPerSecond, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]);

/** Bytes, in powers of 1000: "14.2 kB". */
export const bytes = (count: Maybe): string => scaled(count, 1000, ["B", "kB", "MB", "GB", "TB"]);

/** A short time in milliseconds: "48 ms", "1.2 s", "3 min". */
export function milliseconds(value: Maybe): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
    if (Math.abs(value) >= 60_000) return duration(value / 1000);
    if (Math.abs(value) >= 9_999.5) return `${plain(Math.round(value / 100) / 10)} s`;
    return Math.abs(value) >= 999.5 ? `${plain(value / 1000)} s` : `${plain(value >= 10 ? Math.round(value) : value)} ms`;
}

/** A long time in seconds, in its two largest units at most: "3 min 20 s", "2 d 4 h". */
export function duration(seconds: Maybe): string {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
    const whole = Math.max(0, Math.round(seconds));
    const parts: [number, string][] = [
        [Math.floor(whole / 86_400), "d"],
        [Math.floor(whole / 3600) % 24, "h"],
        [Math.floor(whole / 60) % 60, "min"],
        [whole % 60, "s"],
    ];
    const first = parts.findIndex(([count]) => count > 0);
    if (first < 0) return "0 s";
    return parts
        .slice(first, first + 2)
        .filter(([count]) => count > 0)
        .map(([count, unit]) => `${count} ${unit}`)
        .join(" ");
}

/** A share as a percentage: 0.984 → "98.4 %". */
export function percent(share: Maybe): string {
    if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
    // A share below 1 is not rounded up to 100 %.
    const value = share < 1 ? Math.min(share * 100, 99.9) : share * 100;
    return `${value.toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

/** An accuracy with three decimals: "0.964". */
export function accuracy(value: Maybe): string {
    return value === null || value === undefined || !Number.isFinite(value) ? UNKNOWN : value.toFixed(3);
}

/** Frames per second: "15 fps". */
export function frameRate(value: Maybe): string {
    return value === null || value === undefined || !Number.isFinite(value) ? UNKNOWN : `${plain(value)} fps`;
}

/** A time of day in the browser's time zone: "14:03:09". */
export function timeOfDay(utcMs: number): string {
    return new Date(utcMs).toLocaleTimeString("en-GB");
}

/** A count with its noun: "1 frame", "12 frames". */
export function counted(count: number, noun: string): string {
    return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
