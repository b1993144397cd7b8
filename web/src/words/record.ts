/** Formats records of derived streams for reading. */

/** Longest formatted text. Because of the indentation, nested lists grow with the square of their depth. */
const READABLE_MAX = 64 * 1024;

/** Formats JSON with one line per value, or on one line if it is nested deeply. Other text and too long JSON stay unchanged. */
export function readable(text: string): string {
    try {
        const laidOut = JSON.stringify(JSON.parse(text), null, isDeep(text) ? 0 : 1);
        return laidOut.length <= READABLE_MAX ? laidOut : text;
    } catch {
        return text;
    }
}

/** Whether JSON may have more than 50 levels. Brackets within strings count, too. */
function isDeep(text: string): boolean {
    let depth = 0;
    for (const character of text) {
        if (character === "[" || character === "{") depth += 1;
        else if (character === "]" || character === "}") depth -= 1;
        if (depth > 50) return true;
    }
    return false;
}
