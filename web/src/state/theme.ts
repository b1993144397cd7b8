/** Light or dark theme: the setting of the system, or the choice in this browser. */

export type Theme = "light" | "dark";

const KEY = "mez-theme";

/** The current theme. */
export function shownTheme(): Theme {
    return chosen() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Applies the theme that was chosen in this browser before, if any. */
export function restoreTheme(): void {
    const theme = chosen();
    if (theme) document.documentElement.dataset["theme"] = theme;
}

export function chooseTheme(theme: Theme): void {
    document.documentElement.dataset["theme"] = theme;
    try {
        localStorage.setItem(KEY, theme);
    } catch {
        // The browser stores nothing, so the choice lasts until the page is closed.
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
