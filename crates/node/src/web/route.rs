//! Answers requests: what each path gives, and which rights it needs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::rights::Granted;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use super::answers::Health;
use super::assets::Assets;
use super::caller::{Caller, Peer, Shown, caller, cookie, same_origin, scrapes};
use super::events::{Events, Reader};
use super::fill::{self, utc_ms};
use super::history::{History, Wanted};
use super::places::{Full, Place, Places};
use super::proxy::Proxy;
use super::response::{Answer, Refused, bytes, empty, file, json, stream};
use super::sessions::{Sessions, SignInError};
use super::video::{PIECES_MAX as VIDEO_PIECES_MAX, PIECES_OF_PRINCIPAL_MAX};
use super::views::{Picture, Views};
use super::watcher::{Edge, Look};
use super::{ScrapeToken, text};
use crate::api::edge::EdgeApi;
use crate::clock::wall_now;

/// The most readers of events at once.
const EVENT_READERS_MAX: usize = 256;
/// The most readers of events of one principal.
const EVENT_READERS_OF_PRINCIPAL_MAX: usize = 32;
/// The most events in one write.
const EVENTS_AT_ONCE_MAX: usize = 64;
/// The most pieces of an event stream that wait for a connection.
const PIECES_MAX: usize = 1;
/// How often an event stream sends something, so that both ends notice when the other is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The most bytes of a request's body, which is a sign-in token.
const REQUEST_BYTES_MAX: usize = 4 << 10;
/// How long a request's body may take to arrive.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// Everything that answers are made from.
pub(super) struct Site {
    pub(super) api: EdgeApi,
    pub(super) edge: Edge,
    pub(super) looks: watch::Receiver<Arc<Look>>,
    pub(super) events: Arc<Events>,
    pub(super) views: Views,
    pub(super) sessions: Arc<Sessions>,
    pub(super) scrape_token: Option<ScrapeToken>,
    proxy: Option<Proxy>,
    pub(super) assets: Assets,
    pub(super) port: u16,
    event_readers: Places<String>,
    /// Pieces of video that are being sent.
    pieces: Places<String>,
    history: History,
}

/// What a [`Site`] begins with.
pub(super) struct Begin {
    pub(super) api: EdgeApi,
    pub(super) edge: Edge,
    pub(super) looks: watch::Receiver<Arc<Look>>,
    pub(super) events: Arc<Events>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) scrape_token: Option<ScrapeToken>,
    pub(super) proxy: Option<Proxy>,
    pub(super) assets: Assets,
    pub(super) port: u16,
}

/// The body of a sign-in request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

impl Site {
    pub(super) fn new(begin: Begin) -> Self {
        let Begin { api, edge, looks, events, sessions, scrape_token, proxy, assets, port } = begin;
        let views = Views::new(api.clone(), looks.clone());
        let event_readers = Places::new(EVENT_READERS_MAX, EVENT_READERS_OF_PRINCIPAL_MAX);
        let pieces = Places::new(VIDEO_PIECES_MAX, PIECES_OF_PRINCIPAL_MAX);
        let history = History::default();
        Self {
            api,
            edge,
            looks,
            events,
            views,
            sessions,
            scrape_token,
            proxy,
            assets,
            port,
            event_readers,
            pieces,
            history,
        }
    }

    /// Answers a request. Never fails: an error becomes an answer.
    pub(super) async fn answer(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        let is_head = request.method() == Method::HEAD;
        if !peer.is_known() && self.who(&peer, request.headers()).is_ok() {
            peer.known();
        }
        let mut answer = self.routed(&peer, request).await.unwrap_or_else(Answer::from);
        if is_head {
            *answer.body_mut() = empty(StatusCode::OK).into_body();
        }
        Ok(answer)
    }

    async fn routed(self: &Arc<Self>, peer: &Peer, request: Request<Incoming>) -> Result<Answer, Refused> {
        if let Some(proxy) = &self.proxy {
            // A refused proxy header refuses the request, whatever its path.
            proxy.person(peer, request.headers())?;
        }
        let path = request.uri().path().to_owned();
        if path == "/api/v1/session" && *request.method() == Method::POST {
            return self.sign_in(peer, request).await;
        }
        if path == "/api/v1/session" && *request.method() == Method::DELETE {
            return self.sign_out(peer, &request);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let detail = "only GET is allowed here; /openapi.json lists the methods of all paths";
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail));
        }
        match path.as_str() {
            "/livez" => Ok(self.live()),
            "/readyz" => Ok(self.ready()),
            "/metrics" => self.metrics(peer, &request),
            path if path.starts_with("/api/") => self.api(path, peer, &request).await,
            path => self.assets.find(path).map(file).ok_or_else(Refused::not_found),
        }
    }

    /// Answers paths that need a signed-in caller.
    async fn api(
        self: &Arc<Self>,
        path: &str,
        peer: &Peer,
        request: &Request<Incoming>,
    ) -> Result<Answer, Refused> {
        let caller = self.caller(peer, request)?;
        match path {
            "/api/v1/session" => Ok(json(&caller.signed_in())),
            "/api/v1/site" => {
                let granted = self.observable(&caller)?;
                Ok(json(&fill::site(&self.look(), &self.edge, &granted, caller.signed_in())))
            }
            "/api/v1/cameras" => {
                let granted = self.observable(&caller)?;
                let watched = self.api.watchable(&caller.principal);
                Ok(json(&fill::cameras(&self.look(), &self.edge, &granted, watched.as_ref())))
            }
            "/api/v1/applications" => {
                let (granted, who) = (self.observable(&caller)?, caller.principal.bearer());
                Ok(json(&fill::applications(&self.look(), &self.edge, &granted, &who)))
            }
            "/api/v1/events" => self.events(caller, request.headers()),
            path if Wanted::is(path) => self.history.answer(self, &caller, request.uri()).await,
            path => {
                if let Some(camera) = camera_of(path, "/picture") {
                    self.picture(&caller, &camera?, request.headers()).await
                } else if let Some(camera) = camera_of(path, "/video") {
                    self.video(&caller, &camera?, request.uri().query()).await
                } else if let Some(camera) = camera_of(path, "/replies") {
                    let last = self.api.last_replies(&caller.principal, &camera?)?;
                    Ok(json(&fill::replies(last, &self.edge)))
                } else {
                    Err(Refused::not_found())
                }
            }
        }
    }

    pub(super) fn look(&self) -> Arc<Look> {
        Arc::clone(&self.looks.borrow())
    }

    fn caller(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Caller, Refused> {
        same_origin(request.uri(), request.headers())?;
        let caller = self.who(peer, request.headers())?;
        if caller.is_proxied && self.proxy.as_ref().is_some_and(|proxy| proxy.is_news(&caller.principal)) {
            self.api.signed_in(&caller.principal, peer.from.to_canonical().to_string());
        }
        Ok(caller)
    }

    fn who(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Refused> {
        caller(peer, headers, (&self.sessions, self.port), self.proxy.as_ref())
    }

    fn observable(&self, caller: &Caller) -> Result<Granted, Refused> {
        Ok(self.api.observable(&caller.principal)?)
    }

    // ---- health and metrics -------------------------------------------------------------------------------

    /// Answers that the process is alive. `/readyz` tells whether it does its work.
    fn live(&self) -> Answer {
        bytes("text/plain; charset=utf-8", Bytes::from_static(b"ok\n"))
    }

    fn ready(&self) -> Answer {
        let health: Health = self.look().health(&self.edge);
        let mut answer = json(&health);
        if !health.ok {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    }

    /// Answers with metrics. They cover all cameras, so a caller without the token must be allowed to observe all of them.
    fn metrics(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Answer, Refused> {
        let refused = |detail| Err(Refused::new(StatusCode::UNAUTHORIZED, "WRONG_TOKEN", detail));
        match scrapes(request.headers(), self.scrape_token.as_ref()) {
            Shown::Token => peer.known(),
            Shown::Wrong => {
                return refused(
                    "the scrape token is wrong; send the token in the file that `--scrape-token-file` names",
                );
            }
            Shown::Unasked => {
                return refused(
                    "this edge accepts no scrape token; start the edge with `mez edge --scrape-token-file FILE`, or set scrape_token_file",
                );
            }
            Shown::Nothing => {
                let caller = self.caller(peer, request)?;
                if !self.api.observes_everything(&caller.principal)? {
                    let who = caller.principal.bearer();
                    let detail = format!(
                        "metrics cover all cameras; to grant this, run `mez keys grant {who} observe '**'` on the edge's host"
                    );
                    return Err(Refused::new(StatusCode::FORBIDDEN, "PERMISSION_DENIED", detail));
                }
            }
        }
        Ok(bytes(text::CONTENT_TYPE, self.look().metrics(&self.edge)))
    }

    // ---- signing in ---------------------------------------------------------------------------------------

    async fn sign_in(&self, peer: &Peer, request: Request<Incoming>) -> Result<Answer, Refused> {
        same_origin(request.uri(), request.headers())?;
        let malformed = || {
            Refused::new(StatusCode::BAD_REQUEST, "MALFORMED", "send {\"token\": \"…\"} as application/json")
        };
        // A form of another page cannot send this media type without a CORS preflight.
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(|value| {
            value.to_str().is_ok_and(|text| text.split(';').next().unwrap_or_default() == "application/json")
        });
        if !is_json {
            return Err(malformed());
        }
        let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect();
        let body = tokio::time::timeout(REQUEST_TIME_MAX, body).await.map_err(|_| malformed())?;
        let body = body.map_err(|_| malformed())?.to_bytes();
        let SignIn { token } = serde_json::from_slice(&body).map_err(|_| malformed())?;
        let issued = self.sessions.sign_in(peer.from.into(), &token).map_err(|error| {
            let (status, reason) = match error {
                SignInError::Unknown => (StatusCode::UNAUTHORIZED, "UNKNOWN_LINK"),
                SignInError::TooMany => (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_ATTEMPTS"),
            };
            Refused::new(status, reason, error.to_string())
        })?;
        peer.known();
        self.api.signed_in(&issued.signed.principal, peer.from.to_canonical().to_string());
        Ok(self.with_cookie(&issued.secret))
    }

    fn sign_out(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Answer, Refused> {
        let caller = self.caller(peer, request)?;
        if let Some(session) = caller.session() {
            self.sessions.sign_out(session);
        }
        Ok(self.with_cookie(""))
    }

    fn with_cookie(&self, secret: &str) -> Answer {
        let mut answer = empty(StatusCode::NO_CONTENT);
        // The cookie consists of base64 and digits.
        let cookie = HeaderValue::from_str(&cookie(self.port, secret)).expect("it is printable");
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
        answer
    }

    // ---- pictures -----------------------------------------------------------------------------------------

    async fn picture(
        &self,
        caller: &Caller,
        camera: &CameraName,
        headers: &HeaderMap,
    ) -> Result<Answer, Refused> {
        let Some(picture) = self.views.picture(&caller.principal, camera).await? else {
            return Ok(empty(StatusCode::NO_CONTENT));
        };
        let tag = format!("\"{}-{}\"", picture.epoch, picture.sequence);
        let has = headers.get(header::IF_NONE_MATCH).is_some_and(|has| has.as_bytes() == tag.as_bytes());
        let mut answer = match has {
            true => empty(StatusCode::NOT_MODIFIED),
            false => bytes("image/jpeg", picture.jpeg.clone()),
        };
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            answer.headers_mut().insert(header::ETAG, tag);
        }
        describe(&picture, answer.headers_mut());
        Ok(answer)
    }

    /// Answers with the frames after the frame that the client has, in their original encoding.
    async fn video(
        &self,
        caller: &Caller,
        camera: &CameraName,
        query: Option<&str>,
    ) -> Result<Answer, Refused> {
        let after = query.map(after).transpose()?;
        let Some(piece) = self.views.video(&caller.principal, camera, after).await? else {
            return Ok(empty(StatusCode::NO_CONTENT));
        };
        let place = self.pieces.enter(caller.principal.short()).map_err(|full| {
            let (max, whose) = match full {
                Full::Own => (PIECES_OF_PRINCIPAL_MAX, "of this identity"),
                Full::All => (VIDEO_PIECES_MAX, "of all identities"),
            };
            let detail =
                format!("{max} pieces of video {whose} are being sent, which is the limit; close some tabs");
            Refused::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_PIECES", detail)
        })?;
        let last = Arc::clone(&piece.last);
        let mut answer = bytes("application/octet-stream", piece.held(place));
        describe(&last, answer.headers_mut());
        Ok(answer)
    }

    // ---- events -------------------------------------------------------------------------------------------

    fn events(self: &Arc<Self>, caller: Caller, headers: &HeaderMap) -> Result<Answer, Refused> {
        self.observable(&caller)?;
        let place = self.event_readers.enter(caller.principal.short()).map_err(|full| {
            let (max, whose) = match full {
                Full::Own => (EVENT_READERS_OF_PRINCIPAL_MAX, "of this identity"),
                Full::All => (EVENT_READERS_MAX, "of all identities"),
            };
            let detail =
                format!("{max} readers of events {whose} are connected, which is the limit; close some tabs");
            Refused::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_READERS", detail)
        })?;
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let (pieces, receiver) = mpsc::channel(PIECES_MAX);
        tokio::spawn(Arc::clone(self).tell_events(caller, last, (pieces, place)));
        Ok(stream("text/event-stream", receiver))
    }

    /// Writes events until the reader disconnects, its session or rights end, or the edge stops.
    async fn tell_events(
        self: Arc<Self>,
        caller: Caller,
        last: Option<String>,
        (pieces, _place): (mpsc::Sender<Bytes>, Place<String>),
    ) {
        let (mut news, mut rights) = (self.events.subscribe(), self.api.changing_rights());
        let (mut cursor, missed) = self.events.resume(last.as_deref(), utc_ms(wall_now()));
        let who = caller.principal.bearer();
        // A browser that lost the connection reconnects after a second.
        let mut piece = String::from("retry: 1000\n\n");
        piece.extend(missed.iter().map(written));
        loop {
            news.borrow_and_update();
            // Rights are checked again for each write.
            rights.notice();
            let Ok(granted) = self.api.observable(&caller.principal) else { return };
            if !caller.goes_on(&self.sessions) {
                return;
            }
            let reader = Reader { granted: &granted, who: &who };
            let next = self.events.next(cursor, utc_ms(wall_now()), (reader, EVENTS_AT_ONCE_MAX));
            let is_more = next.cursor != cursor;
            cursor = next.cursor;
            piece.extend(next.events.iter().map(written));
            if !piece.is_empty() && pieces.send(std::mem::take(&mut piece).into()).await.is_err() {
                return;
            }
            if is_more {
                continue;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = rights.changed() => {}
                () = tokio::time::sleep(KEEPALIVE) => piece.push_str(": still here\n\n"),
                () = pieces.closed() => return,
                () = stopping(&self.api) => return,
            }
        }
    }
}

/// Waits until the edge stops.
async fn stopping(api: &EdgeApi) {
    let mut stopping = api.stopping();
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// An event in the format of server-sent events.
fn written(event: &super::answers::Event) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\ndata: {data}\n\n", event.id)
}

/// The camera of a path such as `/api/v1/cameras/dock/cam1/picture`; its slashes may be percent-encoded. `None`: it is another path.
pub(super) fn camera_of(path: &str, end: &str) -> Option<Result<CameraName, Refused>> {
    let name = path.strip_prefix("/api/v1/cameras/")?.strip_suffix(end)?;
    let invalid = |why: String| Refused::new(StatusCode::BAD_REQUEST, "INVALID_CAMERA", why);
    let name = percent_decode_str(name).decode_utf8().map_err(|_| invalid("the name is not UTF-8".into()));
    Some(name.and_then(|name| name.parse::<CameraName>().map_err(|error| invalid(error.to_string()))))
}

/// Parses `after=EPOCH-SEQUENCE`.
fn after(query: &str) -> Result<FrameId, Refused> {
    let frame = query.strip_prefix("after=").and_then(|frame| frame.split_once('-'));
    let frame = frame.and_then(|(epoch, sequence)| {
        Some(FrameId { epoch: Epoch(epoch.parse().ok()?), sequence: Sequence(sequence.parse().ok()?) })
    });
    frame.ok_or_else(|| {
        let detail = "give after=EPOCH-SEQUENCE, the last frame that you have, or no parameter";
        Refused::new(StatusCode::BAD_REQUEST, "MALFORMED", detail)
    })
}

/// Adds headers that describe a picture.
pub(super) fn describe(picture: &Picture, headers: &mut HeaderMap) {
    let (width, height) = picture.published;
    let told = [
        ("mez-epoch", Some(picture.epoch.to_string())),
        ("mez-sequence", Some(picture.sequence.to_string())),
        ("mez-captured-utc-ms", Some(picture.captured_utc_ms.to_string())),
        ("mez-age-ms", picture.age().map(|age| age.as_millis().to_string())),
        ("mez-rung", Some(picture.rung.clone())),
        ("mez-width", Some(width.to_string())),
        ("mez-height", Some(height.to_string())),
    ];
    for (name, value) in told {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_of_a_name_may_be_escaped() {
        let name =
            |path: &str| camera_of(path, "/picture").map(|name| name.map(|name| name.to_string()).ok());
        for path in ["/api/v1/cameras/dock/cam1/picture", "/api/v1/cameras/dock%2Fcam1/picture"] {
            assert_eq!(name(path), Some(Some("dock/cam1".into())), "{path}");
        }
        for invalid in
            ["/api/v1/cameras//picture", "/api/v1/cameras/%ff/picture", "/api/v1/cameras/*/picture"]
        {
            assert_eq!(name(invalid), Some(None), "{invalid}");
        }
        assert_eq!(name("/api/v1/cameras/dock/cam1"), None);
    }
}
