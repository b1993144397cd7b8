/**
 * Uses the page like a person, in Debian's Chromium, against a real edge. `python/tests/test_page.py` runs the edge, the cameras and this
 * program, which reads one story per line from its standard input, as JSON. It answers each with a line: `{"failed": null}` or the error.
 *
 * @typedef {object} Task
 * @property {string} story Name of the story, a key of `STORIES`.
 * @property {string} link A link that signs in once (`mez edge open`).
 * @property {string} shots The folder for screenshots.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Longest wait for anything to appear, in milliseconds. Not a measurement: it ends a test that hangs. */
const APPEARS_MS = 20_000;

/** A signed-in page in a browser, with its errors. */
class Visit {
    /** @type {string[]} */
    complaints = [];

    /**
     * @param {import("playwright-core").Page} page
     * @param {Task} task
     */
    constructor(page, task) {
        this.page = page;
        this.task = task;
        const origin = new URL(task.link).origin;
        page.on("pageerror", (error) => this.complaints.push(`error: ${error.message}`));
        page.on("console", (message) => {
            if (["error", "warning"].includes(message.type())) this.complaints.push(`${message.type()}: ${message.text()}`);
        });
        page.on("request", (request) => {
            const asked = request.url();
            if (!asked.startsWith("blob:") && new URL(asked).origin !== origin) this.complaints.push(`request to another server: ${asked}`);
        });
    }

    /** @param {string} [query] */
    async open(query = "") {
        const link = new URL(this.task.link);
        await this.page.goto(`${link.origin}/${query}${link.hash}`);
        await this.page.waitForFunction(() => !location.hash.includes("token"), null, { timeout: APPEARS_MS });
    }

    /** @param {string} text */
    async sees(text) {
        await this.page.getByText(text).first().waitFor({ timeout: APPEARS_MS });
    }

    /** Number of pictures on the page. */
    async pictures() {
        return this.page.locator(".picture canvas:not([hidden])").count();
    }

    /** @param {number} count */
    async seesPictures(count) {
        await this.page.waitForFunction((wanted) => document.querySelectorAll(".picture canvas:not([hidden])").length >= wanted, count, {
            timeout: APPEARS_MS,
        });
    }

    /** @param {string} name */
    async shoot(name) {
        await this.page.screenshot({ path: path.join(this.task.shots, `${name}.png`), fullPage: true });
    }

    /** Checks the rules of accessibility. The debugger injects axe, because the page's policy allows no other scripts. */
    async isAccessible() {
        await this.page.evaluate(await (await import("node:fs/promises")).readFile(AXE, "utf8"));
        const found = await this.page.evaluate(async () => {
            // @ts-expect-error axe was injected above.
            const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
            return violations.map(
                (/** @type {any} */ one) => `${one.id}: ${one.help}: ${one.nodes.map((/** @type {any} */ node) => node.html).slice(0, 2)}`,
            );
        });
        assert.deepEqual(found, []);
    }

    /** Checks that nothing is wider than the screen. */
    async fits() {
        const wide = await this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(wide <= 0, `the page is ${wide} pixels wider than the screen`);
    }
}

/**
 * Waits until a condition is true.
 *
 * @param {() => boolean | Promise<boolean>} condition
 */
async function until(condition) {
    const endMs = performance.now() + APPEARS_MS;
    while (!(await condition())) {
        assert.ok(performance.now() < endMs, `the condition did not become true: ${condition}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

/** @type {Record<string, { options?: import("playwright-core").BrowserContextOptions, run: (visit: Visit) => Promise<void> }>} */
const STORIES = {
    grid: {
        async run(visit) {
            await visit.open();
            await visit.seesPictures(4);
            await visit.sees("contract kept");
            await visit.sees("cannot be kept");
            await visit.page.locator(".boxes text", { hasText: "person" }).waitFor({ timeout: APPEARS_MS });
            await visit.isAccessible();
            await visit.shoot("grid");
        },
    },
    sixteen: {
        options: { viewport: { width: 1600, height: 1200 } },
        async run(visit) {
            await visit.open();
            await visit.sees("16 of 16 cameras connected");
            await visit.seesPictures(16);
            await visit.fits();
            await visit.isAccessible();
            await visit.shoot("sixteen");
        },
    },
    video: {
        async run(visit) {
            /** @type {Record<string, number>} */
            const answers = { picture: 0, video: 0 };
            visit.page.on("response", (response) => {
                const what = new URL(response.url()).pathname.split("/").at(-1) ?? "";
                if (what in answers && response.status() === 200) answers[what] = (answers[what] ?? 0) + 1;
            });
            await visit.open();
            await visit.seesPictures(1);
            const drawn = async () => {
                const pixels = await visit.page.locator(".picture canvas").evaluate((/** @type {HTMLCanvasElement} */ canvas) => {
                    // Reading the canvas itself would make the canvas slower.
                    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
                    copy?.drawImage(canvas, 0, 0);
                    const { data } = copy?.getImageData(0, 0, canvas.width, canvas.height) ?? { data: [] };
                    return [canvas.width, canvas.height, ...data];
                });
                return { size: pixels.slice(0, 2), colours: new Set(pixels.slice(2)).size, pixels: pixels.join() };
            };
            // The edge makes no more pictures, and the drawn picture changes.
            await until(() => (answers.video ?? 0) > 5);
            const [made, before] = [answers.picture, await drawn()];
            await until(async () => (await drawn()).pixels !== before.pixels);
            assert.deepEqual(before.size, [320, 180]);
            assert.ok(before.colours > 20, `${before.colours} colours`);
            assert.equal(answers.picture, made);
            await visit.shoot("video");
        },
    },
    degraded: {
        async run(visit) {
            await visit.open();
            await visit.page.getByRole("link", { name: "hall/coarse" }).click();
            await visit.sees("no rung of the profile keeps the floor 0.95; the best keeps 0.930");
            await visit.sees(", below the floor of 0.950");
            await visit.seesPictures(1);
            // All five timelines are drawn.
            const drawn = () => document.querySelectorAll(".chart canvas").length === 5;
            await visit.page.waitForFunction(drawn, null, { timeout: APPEARS_MS });
            await visit.isAccessible();
            await visit.shoot("degraded");
        },
    },
    snippets: {
        options: { permissions: ["clipboard-read", "clipboard-write"] },
        async run(visit) {
            await visit.open();
            await visit.page.getByRole("link", { name: "hall/plain", exact: true }).click();
            await visit.page.getByRole("button", { name: "Copy gRPC" }).click();
            await visit.sees("Copied");
            const { writeFile } = await import("node:fs/promises");
            await writeFile(path.join(visit.task.shots, "reads.py"), await visit.page.evaluate(() => navigator.clipboard.readText()));
            const downloading = visit.page.waitForEvent("download");
            await visit.page.getByRole("link", { name: "mez.proto" }).click();
            await (await downloading).saveAs(path.join(visit.task.shots, "mez.proto"));
            await visit.isAccessible();
            await visit.shoot("snippets");
        },
    },
    dark: {
        options: { colorScheme: "dark" },
        async run(visit) {
            await visit.open();
            await visit.page.getByRole("link", { name: "Site" }).click();
            await visit.sees("Links, clocks and disks");
            await visit.isAccessible();
            await visit.shoot("dark");
            await visit.page.getByRole("button", { name: "Light" }).click();
            assert.equal(await visit.page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "light");
            await visit.page.reload();
            await visit.sees("Links, clocks and disks");
            assert.equal(await visit.page.evaluate(() => document.documentElement.dataset["theme"]), "light");
            await visit.isAccessible();
            await visit.shoot("site");
        },
    },
    phone: {
        options: { viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true },
        async run(visit) {
            await visit.open();
            await visit.seesPictures(1);
            await visit.fits();
            await visit.shoot("phone");
            await visit.page.getByRole("link", { name: "hall/coarse" }).tap();
            await visit.sees("Why this quality now");
            await visit.fits();
            await visit.isAccessible();
            await visit.shoot("phone-camera");
        },
    },
    kiosk: {
        options: { viewport: { width: 1920, height: 1080 } },
        async run(visit) {
            await visit.open("?kiosk");
            await visit.seesPictures(4);
            const scrolls = await visit.page.evaluate(() => document.documentElement.scrollHeight > innerHeight);
            assert.equal(scrolls, false, "a wall screen does not scroll");
            await visit.isAccessible();
            await visit.shoot("kiosk");
        },
    },
    keyboard: {
        async run(visit) {
            await visit.open();
            await visit.sees("hall/coarse");
            await press(visit, "Applications");
            await visit.sees("Groups of readers");
            await visit.isAccessible();
            await visit.shoot("applications");
            await press(visit, "Site");
            await visit.sees("Links, clocks and disks");
            await press(visit, "Cameras");
            await press(visit, "hall/coarse");
            await visit.sees("Why this quality now");
            // Screen readers continue at the beginning of the new view.
            assert.equal(await visit.page.evaluate(() => document.activeElement?.tagName), "MAIN");
        },
    },
    hidden: {
        async run(visit) {
            await visit.open();
            await visit.seesPictures(1);
            let asked = 0;
            // Requests that began before the page was hidden may still be under way.
            await setHidden(visit, true);
            await visit.page.waitForTimeout(500);
            visit.page.on("request", () => (asked += 1));
            await visit.page.waitForTimeout(2_500);
            assert.equal(asked, 0, "a hidden page sends no requests");
            await setHidden(visit, false);
            await visit.page.waitForRequest("**/api/v1/cameras", { timeout: APPEARS_MS });
        },
    },
    history: {
        async run(visit) {
            await visit.open();
            await visit.page.getByRole("link", { name: "hall/fine", exact: true }).click();
            await visit.page.getByRole("link", { name: "History" }).click();
            await visit.sees("Missing at the edge");
            const slider = visit.page.getByRole("slider", { name: "Time" });
            // Goes to the hole after the first frames, by the list of holes. Screen readers get the reason of the hole.
            const holes = visit.page.getByRole("region", { name: "Missing at the edge" }).getByRole("button");
            await holes.last().click();
            await visit.seesPictures(1);
            const told = () => slider.getAttribute("aria-valuetext");
            assert.match((await told()) ?? "", /The edge has frames of this time, in a span of \d+ frames?/);
            await slider.focus();
            await visit.page.keyboard.press("ArrowRight");
            assert.match((await told()) ?? "", /The edge has no frames of this time|There are no frames of this time/);
            // Boxes are drawn on the frames that applications replied to.
            await visit.page.keyboard.press("Home");
            await holes.last().click();
            await visit.page.locator(".boxes text", { hasText: "person" }).waitFor({ timeout: APPEARS_MS });
            // The records of a derived stream are shown, too.
            await visit.page
                .getByRole("region", { name: "Record of hall/fine/people" })
                .getByText('"people": 1')
                .waitFor({ timeout: APPEARS_MS });
            await visit.isAccessible();
            await visit.shoot("history");
            // Playback skips the hole, or shows the frames that the camera still has.
            const before = Number(await slider.inputValue());
            await visit.page.getByLabel("Speed").selectOption("4");
            await visit.page.getByRole("button", { name: "Play" }).click();
            await visit.page.waitForFunction(
                (from) => Number(/** @type {HTMLInputElement} */ (document.querySelector("input[type=range]")).value) > from + 4_000,
                before,
                { timeout: APPEARS_MS },
            );
            await visit.page.getByRole("button", { name: "Pause" }).click();
            const clip = await visit.page.getByRole("link", { name: "from here, as MP4" }).getAttribute("href");
            assert.match(clip ?? "", /\/api\/v1\/cameras\/hall\/fine\/clip\?since_utc_ms=\d+&until_utc_ms=\d+$/);
        },
    },
    "history on a phone": {
        options: { viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true, colorScheme: "dark" },
        async run(visit) {
            await visit.open();
            await visit.page.getByRole("link", { name: "hall/fine", exact: true }).tap();
            await visit.page.getByRole("link", { name: "History" }).tap();
            await visit.sees("Missing at the edge");
            await visit.seesPictures(1);
            await visit.fits();
            await visit.isAccessible();
            await visit.shoot("phone-history");
        },
    },
    empty: {
        async run(visit) {
            await visit.open();
            await visit.sees("No camera yet");
            await visit.sees("mez keys token camera/dock/cam1");
            await visit.isAccessible();
            await visit.shoot("empty");
        },
    },
};

/**
 * Presses Tab until `name` has the focus, then Enter.
 * @param {Visit} visit
 * @param {string} name
 */
async function press({ page }, name) {
    for (let steps = 0; steps < 60; steps += 1) {
        await page.keyboard.press("Tab");
        const focused = await page.evaluate(() => ({
            text: document.activeElement?.textContent?.trim(),
            // A tile shows the focus of the link in it.
            isShown: [document.activeElement, document.activeElement?.closest(".tile")].some(
                (element) => element && getComputedStyle(element).outlineStyle !== "none",
            ),
        }));
        if (focused.text === name) {
            assert.ok(focused.isShown, `nothing shows that “${name}” has the focus`);
            await page.keyboard.press("Enter");
            return;
        }
    }
    assert.fail(`the key Tab does not lead to “${name}”`);
}

/**
 * Tells the page that it is hidden or visible, as a browser does when the tab changes.
 * @param {Visit} visit
 * @param {boolean} hidden
 */
async function setHidden({ page }, hidden) {
    await page.evaluate((value) => {
        Object.defineProperty(document, "hidden", { value, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
}

/** A visit that continues while Python restarts the edge. `before` opens the page, `during` and `after` check it. */
class Restart {
    /** @type {{ visit: Visit, context: import("playwright-core").BrowserContext } | null} */
    #kept = null;

    /** @param {import("playwright-core").Browser} browser @param {Task} task */
    async before(browser, task) {
        const context = await browser.newContext({ ignoreHTTPSErrors: true });
        const visit = new Visit(await context.newPage(), task);
        await visit.open();
        await visit.seesPictures(1);
        this.#kept = { visit, context };
    }

    /** @param {Task} task */
    async during(task) {
        assert.ok(this.#kept, "`before` comes first");
        const { visit } = this.#kept;
        await visit.sees("The edge has not answered since");
        await visit.page.screenshot({ path: path.join(task.shots, "away.png") });
    }

    /** @param {Task} task */
    async after(task) {
        assert.ok(this.#kept, "`before` comes first");
        const { visit, context } = this.#kept;
        // A restart of the edge ends all sessions. A new link in another tab of this browser signs this page in, too.
        await visit.sees("Sign in to this edge");
        await visit.page.screenshot({ path: path.join(task.shots, "signed-out.png") });
        const other = new Visit(await context.newPage(), task);
        await other.open();
        await visit.page.bringToFront();
        await visit.seesPictures(1);
        await context.close();
    }
}

/**
 * @param {import("playwright-core").Browser} browser
 * @param {Restart} restart
 * @param {Task} task
 */
async function tell(browser, restart, task) {
    if (task.story === "restart before") return restart.before(browser, task);
    if (task.story === "restart during") return restart.during(task);
    if (task.story === "restart after") return restart.after(task);
    const story = STORIES[task.story];
    assert.ok(story, `there is no story “${task.story}”`);
    const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 }, ...story.options });
    const visit = new Visit(await context.newPage(), task);
    try {
        await story.run(visit);
        assert.deepEqual(visit.complaints, []);
    } catch (error) {
        await visit.page.screenshot({ path: path.join(task.shots, `${task.story.replaceAll(" ", "-")}-failed.png`) });
        throw error;
    } finally {
        await context.close();
    }
}

const browser = await chromium.launch({
    executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--host-resolver-rules=MAP edge.test 127.0.0.1"],
});
const restart = new Restart();
for await (const line of createInterface({ input: process.stdin })) {
    let failed = null;
    try {
        await tell(browser, restart, /** @type {Task} */ (JSON.parse(line)));
    } catch (error) {
        failed = error instanceof Error ? (error.stack ?? error.message) : String(error);
    }
    process.stdout.write(`${JSON.stringify({ failed })}\n`);
}
await browser.close();
