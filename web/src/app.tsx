/** The whole page: header, notices about the edge, the view that the address names, and footer. */

import { useEffect, useRef, useState } from "preact/hooks";

import { signOut } from "./api/client.ts";
import { Glossary } from "./parts/Glossary.tsx";
import { usePage, useRoute } from "./parts/use.ts";
import { lookNow } from "./state/live.ts";
import { signedOut, type Connection } from "./state/page.ts";
import type { Route } from "./state/route.ts";
import { chooseTheme, shownTheme } from "./state/theme.ts";
import * as units from "./words/units.ts";
import { Applications } from "./views/Applications.tsx";
import { Camera } from "./views/Camera.tsx";
import { Grid } from "./views/Grid.tsx";
import { History } from "./views/History.tsx";
import { SignIn } from "./views/SignIn.tsx";
import { Site } from "./views/Site.tsx";

/** How long the page says that the edge was restarted, in milliseconds. */
const RESTART_TOLD_MS = 60_000;

const TITLES: Record<Route["view"], string> = {
    cameras: "Cameras",
    camera: "Camera",
    history: "History",
    applications: "Applications",
    site: "Site",
};

export function App({ kiosk }: { kiosk: boolean }) {
    const route = useRoute();
    const connection = usePage((page) => page.connection);
    const main = useRef<HTMLElement>(null);
    const address = "camera" in route ? `${route.view}/${route.camera}` : route.view;
    const opened = useRef(address);

    useEffect(() => {
        const what = route.view === "camera" ? route.camera : route.view === "history" ? `History of ${route.camera}` : TITLES[route.view];
        document.title = `${what} · Mez`;
        if (opened.current === address) return;
        opened.current = address;
        // Moves keyboard and screen reader to the new view.
        main.current?.focus({ preventScroll: true });
        scrollTo(0, 0);
        lookNow();
    }, [address]);

    if (connection.is === "signed_out") return <SignIn detail={connection.detail} />;
    return (
        <>
            <a
                class="skip"
                href="#content"
                onClick={(event) => {
                    event.preventDefault();
                    main.current?.focus();
                }}
            >
                Skip to content
            </a>
            {!kiosk && <Header route={route} />}
            <Notice connection={connection} />
            <main ref={main} tabIndex={-1} id="content" class={kiosk && route.view === "cameras" ? "wall" : undefined}>
                {connection.is === "connecting" && <p>Asking the edge…</p>}
                <View route={route} kiosk={kiosk} />
            </main>
            {!kiosk && <Footer />}
        </>
    );
}

function View({ route, kiosk }: { route: Route; kiosk: boolean }) {
    switch (route.view) {
        case "cameras":
            return <Grid kiosk={kiosk} />;
        case "camera":
            // The key resets the view's state for another camera.
            return <Camera key={route.camera} name={route.camera} />;
        case "history":
            return <History key={route.camera} name={route.camera} />;
        case "applications":
            return <Applications />;
        case "site":
            return <Site />;
    }
}

function Header({ route }: { route: Route }) {
    const site = usePage((page) => page.site);
    const here = (...views: Route["view"][]): { "aria-current"?: "page" } => (views.includes(route.view) ? { "aria-current": "page" } : {});
    return (
        <header class="top">
            <a class="brand" href="#/">
                Mez
            </a>
            <nav aria-label="Views">
                <a href="#/" {...here("cameras", "camera", "history")}>
                    Cameras
                </a>
                <a href="#/applications" {...here("applications")}>
                    Applications
                </a>
                <a href="#/site" {...here("site")}>
                    Site
                </a>
            </nav>
            {site && (
                <span class="where">
                    {site.site} / {site.edge}
                </span>
            )}
            <ThemeSwitch />
        </header>
    );
}

function ThemeSwitch() {
    const [theme, setTheme] = useState(shownTheme());
    const other = theme === "dark" ? "light" : "dark";
    const change = (): void => {
        chooseTheme(other);
        setTheme(other);
    };
    return (
        <button type="button" class="quiet" onClick={change}>
            {other === "dark" ? "Dark" : "Light"}
        </button>
    );
}

/** Says that the edge is away, refuses, or was restarted. Screen readers announce it, too. */
function Notice({ connection }: { connection: Connection }) {
    const restartedMs = usePage((page) => page.restartedMs);
    usePage((page) => page.cameras);
    const restarted = restartedMs !== null && Date.now() - restartedMs < RESTART_TOLD_MS;
    return (
        <div role="status" class="notice">
            {connection.is === "lost" && (
                <p class="warn">
                    The edge has not answered since {units.timeOfDay(connection.sinceMs)}. This page shows the last known data, and
                    continues by itself when the edge is back.
                </p>
            )}
            {connection.is === "refused" && <p class="warn">The edge refused the request: {connection.detail}</p>}
            {connection.is === "live" && restarted && (
                <p>The edge was restarted at {units.timeOfDay(restartedMs)}. Its counters start again from 0.</p>
            )}
        </div>
    );
}

function Footer() {
    const site = usePage((page) => page.site);
    const leave = async (): Promise<void> => {
        await signOut();
        signedOut("You are signed out.");
    };
    return (
        <footer>
            <Glossary />
            {site && (
                <p>
                    {site.version}; signed in as {site.signed_in.identity}
                    {site.signed_in.by === "session" && (
                        <button type="button" class="quiet" onClick={leave}>
                            Sign out
                        </button>
                    )}
                    <a href="?kiosk">Wall screen</a>
                </p>
            )}
        </footer>
    );
}
