/** Records of derived streams, for people. */

/** The longest text that is laid out: deep lists grow with the square of their depth, because each level is set in. */
const READABLE_MAX = 64 * 1024;

/** JSON with a line for each value; other text, and JSON that would become very long, as it is. */
export function readable(text: string): string {
    try {
        const laidOut = JSON.stringify(JSON.parse(text), null, isDeep(text) ? 0 : 1);
        return laidOut.length <= READABLE_MAX ? laidOut : text;
    } catch {
        return text;
    }
}

/** Whether it may have more levels than people look through. */
function isDeep(text: string): boolean {
    let depth = 0;
    for (const character of text) {
        if (character === "[" || character === "{") depth += 1;
        else if (character === "]" || character === "}") depth -= 1;
        if (depth > 50) return true;
    }
    return false;
}
