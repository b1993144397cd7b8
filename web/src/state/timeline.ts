/** A camera's figures over the last five minutes, once a second: columns of equal length over one time axis. */

/** Maximum number of samples: five minutes. */
export const SAMPLES_MAX = 300;
/** Maximum number of columns. Each contract needs about ten. */
const COLUMNS_MAX = 256;

export class Timeline {
    /** Times of the samples, in seconds since 1970-01-01 UTC, by the edge's clock. */
    readonly times: number[] = [];
    readonly #columns = new Map<string, (number | null)[]>();

    /** Appends a sample. A column that `values` does not name gets a gap. A sample that is not newer than the last one is dropped. */
    add(time: number, values: ReadonlyMap<string, number | null>): void {
        const last = this.times.at(-1);
        if (last !== undefined && time <= last) return;
        for (const name of values.keys()) {
            if (!this.#columns.has(name) && this.#columns.size < COLUMNS_MAX) {
                this.#columns.set(name, new Array<number | null>(this.times.length).fill(null));
            }
        }
        this.times.push(time);
        for (const [name, column] of this.#columns) column.push(values.get(name) ?? null);
        if (this.times.length > SAMPLES_MAX) this.#forgetOldest();
    }

    /** The values of a column, one for each of `times`. */
    column(name: string): (number | null)[] {
        return this.#columns.get(name) ?? new Array<number | null>(this.times.length).fill(null);
    }

    /** The names of columns that begin with `start`, oldest column first. */
    names(start: string): string[] {
        return [...this.#columns.keys()].filter((name) => name.startsWith(start));
    }

    #forgetOldest(): void {
        this.times.shift();
        for (const [name, column] of this.#columns) {
            column.shift();
            // The subscription has ended, or the skip reason no longer occurs.
            if (column.every((value) => value === null)) this.#columns.delete(name);
        }
    }
}
