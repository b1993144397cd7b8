/** Light or dark: as the system has it, or as the person chose here. */

export type Theme = "light" | "dark";

const KEY = "mez-theme";

/** The colours that are shown now. */
export function shownTheme(): Theme {
    return chosen() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Shows what was chosen in this browser before, if anything was. */
export function restoreTheme(): void {
    const theme = chosen();
    if (theme) document.documentElement.dataset["theme"] = theme;
}

export function chooseTheme(theme: Theme): void {
    document.documentElement.dataset["theme"] = theme;
    try {
        localStorage.setItem(KEY, theme);
    } catch {
        // A browser that keeps nothing: the choice holds until the page is closed.
    }
}

function chosen(): Theme | null {
    const shown = document.documentElement.dataset["theme"];
    if (shown === "light" || shown === "dark") return shown;
    try {
        const kept = localStorage.getItem(KEY);
        return kept === "light" || kept === "dark" ? kept : null;
    } catch {
        return null;
    }
}
