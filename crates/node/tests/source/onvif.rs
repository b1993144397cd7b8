//! Requests for key frames to network cameras, by ONVIF.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mez_core::broker::StreamPart;
use mez_core::frame::{Encoding, Reference, Rung};
use mez_node::client::SubscribeOptions;
use mez_node::feed::feed;
use mez_node::source::{KeyFrameNeed, Source, SourceEvent, SourceOptions, SourceSpec};
use roxmltree::Document;
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tokio::net::TcpListener;

use crate::api_support::{self, Served, within};
use crate::rtsp::{Footage, md5, run_filter, showing_rtsp_camera};
use crate::support::next;

const USER: &str = "bob";
const PASSWORD: &str = "secret";
const NONCE: &str = "4c0ffee0";
/// The camera's clock is set to another time zone, as is common.
const AHEAD: Duration = Duration::hours(2);

/// How a camera authenticates clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// By the header of the envelope.
    InTheEnvelope,
    /// By HTTP digest.
    Digest,
}

/// A camera's ONVIF services over HTTP. It makes a key frame if an authenticated client requests it.
struct OnvifCamera {
    asks: Asks,
    /// Whether it has the newer version of the media service.
    has_media2: bool,
    /// Set if the encoder should make a key frame.
    key_frame: Arc<AtomicBool>,
    /// The number of requests for a key frame.
    asked: AtomicU64,
    /// The nonces of accepted envelopes; none is accepted twice.
    nonces: Mutex<BTreeSet<String>>,
}

impl OnvifCamera {
    async fn start(asks: Asks, has_media2: bool, key_frame: &Arc<AtomicBool>) -> (Arc<Self>, SocketAddr) {
        let (key_frame, asked, nonces) = (Arc::clone(key_frame), AtomicU64::new(0), Mutex::default());
        let camera = Arc::new(Self { asks, has_media2, key_frame, asked, nonces });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&camera);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let camera = Arc::clone(&serving);
                tokio::spawn(async move {
                    let service = service_fn(|request| {
                        let camera = Arc::clone(&camera);
                        async move { Ok::<_, Infallible>(camera.answer(request).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        (camera, address)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert!(!text.contains(PASSWORD), "{text}");
        let document = Document::parse(&text).unwrap();
        let body = document.descendants().find(|node| node.tag_name().name() == "Body").unwrap();
        let question = body.first_element_child().unwrap().tag_name().name();
        let is_for_everybody = question == "GetSystemDateAndTime";
        let is_known = match self.asks {
            Asks::InTheEnvelope => is_for_everybody || self.knows_sender(&document),
            Asks::Digest => {
                is_for_everybody || {
                    let answer = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
                    answer.is_some_and(|answer| is_right(answer, head.uri.path()))
                }
            }
        };
        let has_token = text.contains("UsernameToken");
        assert!(!(is_for_everybody && has_token), "nobody is told who has not shown what it is");
        let response = match (is_known, self.asks) {
            (true, _) => Response::builder(),
            (false, Asks::InTheEnvelope) => Response::builder().status(StatusCode::BAD_REQUEST),
            (false, Asks::Digest) => {
                let question = format!("Digest realm=\"cam\", qop=\"auth\", nonce=\"{NONCE}\"");
                Response::builder().status(StatusCode::UNAUTHORIZED).header(WWW_AUTHENTICATE, question)
            }
        };
        let said =
            if is_known { self.say(question, &text, head.uri.path()) } else { fault("ter:NotAuthorized") };
        response.body(Full::new(said.into())).unwrap()
    }

    /// Whether the envelope authenticates its sender, with a new nonce, by this camera's clock.
    fn knows_sender(&self, envelope: &Document<'_>) -> bool {
        let text = |name: &str| {
            let found = envelope.descendants().find(|node| node.tag_name().name() == name);
            found.and_then(|node| node.text()).unwrap_or_default().to_owned()
        };
        let (nonce, created) = (text("Nonce"), text("Created"));
        let mut input = STANDARD.decode(&nonce).unwrap_or_default();
        input.extend_from_slice(created.as_bytes());
        input.extend_from_slice(PASSWORD.as_bytes());
        let digest = run_filter("sha1sum", &[], &input);
        let digest: Vec<u8> =
            (0..20).map(|at| u8::from_str_radix(&digest[at * 2..][..2], 16).unwrap()).collect();
        // The hour is enough to distinguish the clocks, however slow this host is.
        let now = OffsetDateTime::now_utc() + AHEAD;
        let hour = |at: OffsetDateTime| {
            format!("{:04}-{:02}-{:02}T{:02}", at.year(), u8::from(at.month()), at.day(), at.hour())
        };
        let hours = [hour(now - Duration::hours(1)), hour(now)];
        text("Username") == USER
            && text("Password") == STANDARD.encode(digest)
            && hours.iter().any(|hour| created.starts_with(hour))
            && self.nonces.lock().unwrap().insert(nonce)
    }

    fn say(&self, question: &str, text: &str, path: &str) -> String {
        let (media, schema) = match path {
            "/onvif/Media2" => ("http://www.onvif.org/ver20/media/wsdl", ""),
            _ => ("http://www.onvif.org/ver10/media/wsdl", "http://www.onvif.org/ver10/schema"),
        };
        let tells = |body: String| {
            format!(
                r#"<?xml version="1.0"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:d="http://www.onvif.org/ver10/device/wsdl" xmlns:m="{media}" xmlns:t="{schema}"><s:Body>{body}</s:Body></s:Envelope>"#,
            ).replace(r#" xmlns:t="""#, "")
        };
        match question {
            "GetSystemDateAndTime" => clock(),
            // The address of a camera behind a router differs from the one at which it is reached.
            "GetServices" => {
                let mut services = vec![("http://www.onvif.org/ver10/media/wsdl", "Media")];
                services.extend(self.has_media2.then_some(("http://www.onvif.org/ver20/media/wsdl", "Media2")));
                let services = services.iter().map(|(namespace, name)| format!(
                    "<d:Service><d:Namespace>{namespace}</d:Namespace><d:XAddr>http://192.0.2.7/onvif/{name}</d:XAddr></d:Service>"
                ));
                tells(format!("<d:GetServicesResponse>{}</d:GetServicesResponse>", services.collect::<String>()))
            }
            "GetProfiles" => tells(
                r#"<m:GetProfilesResponse><m:Profiles token="sub"/><m:Profiles token="a&amp;b"/><m:Profiles token="none"/></m:GetProfilesResponse>"#.into(),
            ),
            "GetStreamUri" if text.contains(">none<") => fault("ter:NoProfile"),
            "GetStreamUri" => {
                let path = if text.contains(">a&amp;b<") { "/cam?unicast=1" } else { "/sub" };
                let uri = format!("rtsp://192.0.2.7:554{path}");
                tells(match schema {
                    "" => format!("<m:GetStreamUriResponse><m:Uri>{uri}</m:Uri></m:GetStreamUriResponse>"),
                    _ => format!("<m:GetStreamUriResponse><m:MediaUri><t:Uri>{uri}</t:Uri></m:MediaUri></m:GetStreamUriResponse>"),
                })
            }
            "SetSynchronizationPoint" if text.contains(">a&amp;b<") => {
                assert_eq!(path == "/onvif/Media2", self.has_media2);
                self.asked.fetch_add(1, Ordering::SeqCst);
                self.key_frame.store(true, Ordering::SeqCst);
                tells("<m:SetSynchronizationPointResponse/>".into())
            }
            _ => fault("ter:ActionNotSupported"),
        }
    }
}

fn clock() -> String {
    let now = OffsetDateTime::now_utc() + AHEAD;
    format!(
        r#"<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:t="http://www.onvif.org/ver10/schema"><s:Body><t:UTCDateTime><t:Time><t:Hour>{}</t:Hour><t:Minute>{}</t:Minute><t:Second>{}</t:Second></t:Time><t:Date><t:Year>{}</t:Year><t:Month>{}</t:Month><t:Day>{}</t:Day></t:Date></t:UTCDateTime></s:Body></s:Envelope>"#,
        now.hour(),
        now.minute(),
        now.second(),
        now.year(),
        u8::from(now.month()),
        now.day()
    )
}

fn fault(code: &str) -> String {
    format!(
        r#"<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>{code}</s:Value></s:Subcode></s:Code></s:Fault></s:Body></s:Envelope>"#
    )
}

/// Whether a digest proves that the client knows the password (RFC 7616, with `qop`).
fn is_right(answer: &str, path: &str) -> bool {
    let part = |name: &str| {
        let parts = answer.trim_start_matches("Digest ").split(',').map(str::trim);
        let mut values = parts.filter_map(|part| part.split_once('=')).filter(|(is, _)| *is == name);
        values.next().map(|(_, value)| value.trim_matches('"').to_owned()).unwrap_or_default()
    };
    let (ha1, ha2) = (md5(&format!("{USER}:cam:{PASSWORD}")), md5(&format!("POST:{path}")));
    let (count, random) = (part("nc"), part("cnonce"));
    part("nonce") == NONCE
        && part("username") == USER
        && part("response") == md5(&format!("{ha1}:{NONCE}:{count}:{random}:auth:{ha2}"))
}

/// A camera that makes key frames only on request, and its source.
async fn camera(folder: &TempDir, asks: Asks, has_media2: bool) -> (Arc<OnvifCamera>, Source) {
    let key_frame = Arc::default();
    let (camera, address) = OnvifCamera::start(asks, has_media2, &key_frame).await;
    let url = showing_rtsp_camera(folder.path(), Footage::Told(key_frame)).await;
    let onvif = format!("http://{address}/onvif/device_service").parse().unwrap();
    let options = SourceOptions { onvif, ..SourceOptions::default() };
    (camera, Source::spawn(SourceSpec::parse(&url).unwrap(), options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_camera_that_is_asked_gives_a_key_frame() {
    for (asks, has_media2) in [(Asks::InTheEnvelope, true), (Asks::Digest, false)] {
        let folder = TempDir::new().unwrap();
        let (camera, mut source) = camera(&folder, asks, has_media2).await;
        let (mut parts, mut child) = (Vec::new(), None);
        while parts.iter().filter(|part| **part == StreamPart::Key).count() < 2 {
            let packet = match next(&mut source).await {
                SourceEvent::Packet(packet) => packet,
                SourceEvent::Skipped { .. } => continue,
                event => panic!("{asks:?}: {event:?}"),
            };
            parts.push(packet.part);
            if parts.len() == 5 {
                child = source.child_pid();
                source.ask_key_frame(KeyFrameNeed::Needed);
            }
            assert!(parts.len() < 2_000, "{asks:?}: no key frame came");
        }
        assert_eq!(parts[0], StreamPart::Key);
        assert!(parts[1..parts.len() - 1].iter().all(|part| *part != StreamPart::Key));
        assert_eq!(camera.asked.load(Ordering::SeqCst), 1, "{asks:?}");
        assert_eq!(source.child_pid(), child, "it was not opened again");
    }
}

/// Without a key frame, the reader would get encoded pictures forever, since the camera makes no key frame by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_enters_gets_the_cameras_own_video() {
    let folder = TempDir::new().unwrap();
    let (camera, mut source) = camera(&folder, Asks::InTheEnvelope, true).await;
    let served = Served::new().await;
    let fed = served.camera.clone();
    let feeding = tokio::spawn(async move { feed(&fed, &mut source, || {}).await });
    within(served.camera.appended().wait_for(|count| *count >= 20)).await.unwrap();
    assert_eq!(camera.asked.load(Ordering::SeqCst), 0, "nobody looks");
    let options = SubscribeOptions {
        accept_encodings: vec![Encoding::H264, Encoding::Jpeg],
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    };
    let mut subscription = served.client().await.subscribe(options).await.unwrap();
    let mut instead = 0;
    let first = loop {
        let frame = api_support::frame(&mut subscription).await;
        if frame.meta.rung.as_str() == Rung::ORIGINAL && frame.meta.encoding == Encoding::H264 {
            break frame;
        }
        instead += 1;
        assert!(instead < 2_000, "only frames that were made of the camera's video came");
    };
    assert_eq!(first.meta.chain.reference, Reference::Independent);
    assert!(first.meta.id.sequence.0 >= 20);
    assert!(camera.asked.load(Ordering::SeqCst) >= 1);
    feeding.abort();
}

/// The packets of x265 cross a real RTSP session and both brokers, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn h265_of_a_network_camera_reaches_who_accepts_it() {
    let (folder, coded) = (TempDir::new().unwrap(), Arc::default());
    let url = showing_rtsp_camera(folder.path(), Footage::X265(Arc::clone(&coded))).await;
    let mut source = Source::spawn(SourceSpec::parse(&url).unwrap(), SourceOptions::default()).await.unwrap();
    let served = Served::new().await;
    let fed = served.camera.clone();
    let feeding = tokio::spawn(async move { feed(&fed, &mut source, || {}).await });
    let options = SubscribeOptions {
        accept_encodings: vec![Encoding::H265, Encoding::Jpeg],
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    };
    let mut subscription = served.client().await.subscribe(options).await.unwrap();
    let mut own = 0;
    while own < 30 {
        let frame = api_support::frame(&mut subscription).await;
        if frame.meta.encoding != Encoding::H265 {
            continue;
        }
        assert_eq!(frame.meta.rung.as_str(), Rung::ORIGINAL);
        // The picture is the last part of its packet. NUT omits common prefixes: start code and
        // header. ffmpeg's RTSP reader counts a zero before the next start code to this one.
        let start = frame.payload.windows(3).rposition(|bytes| bytes == [0, 0, 1]).unwrap();
        let picture = without_zeros(&frame.payload[start + 5..]);
        let is_of_camera = coded.lock().unwrap().windows(picture.len()).any(|bytes| bytes == picture);
        assert!(is_of_camera, "{}: {} bytes of nobody", frame.meta.id, picture.len());
        own += 1;
    }
    feeding.abort();
}

/// Bytes without trailing zeros.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}
