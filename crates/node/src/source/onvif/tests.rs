//! Cameras that are broken, or are something else: any answer is an error, soon, and the password is not shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::address::OnvifChoice;
use super::device::{Device, OnvifError};
use super::http::HttpError;
use super::soap::SoapError;
use crate::source::spec::SourceSpec;

/// How a server answers each request.
#[derive(Clone)]
enum Answers {
    With(String),
    /// The answer, and then zeros without end.
    Endless(String),
    Never,
}

/// A server that answers every request in the same way, and counts them.
struct Server {
    port: u16,
    requests: Arc<AtomicU64>,
}

impl Server {
    async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answers.clone()));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, answers: Answers) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await.is_ok_and(|count| count > 2) {
        if let Some((_, value)) = line.to_ascii_lowercase().split_once("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let said = match &answers {
        Answers::With(text) | Answers::Endless(text) => text.as_bytes(),
        Answers::Never => std::future::pending().await,
    };
    let mut goes_on = stream.write_all(said).await.is_ok();
    while goes_on && matches!(answers, Answers::Endless(_)) {
        goes_on = stream.write_all(&[b' '; 4096]).await.is_ok();
    }
}

fn response(head: &str, body: &str) -> Answers {
    Answers::With(format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// The error of a look for the profile of a source at this server. No message may show the password.
async fn looked(server: &Server) -> OnvifError {
    let choice: OnvifChoice = format!("http://127.0.0.1:{}", server.port).parse().unwrap();
    let source = SourceSpec::parse("rtsp://bob:hunter2@127.0.0.1:1/x").unwrap();
    let mut device = Device::new(choice.of(&source).unwrap(), &source);
    let error = device.ask_key_frame().await.unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    error
}

async fn answered(answers: Answers) -> OnvifError {
    looked(&Server::start(answers).await).await
}

#[tokio::test]
async fn answers_that_are_none_are_errors() {
    for rubbish in
        ["", "\u{0}\u{0}\u{0}", "220 ftp.example ready\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<"]
    {
        let error = answered(Answers::With(rubbish.into())).await;
        assert!(
            matches!(error, OnvifError::Http(HttpError::Broken(_) | HttpError::Body)),
            "{rubbish:?}: {error}"
        );
    }
    let error = answered(response("200 OK", "<html>welcome</html>")).await;
    assert!(matches!(error, OnvifError::Soap(SoapError::Lacks(_))), "{error}");
    let error = answered(response("200 OK", "\u{1}")).await;
    assert!(matches!(error, OnvifError::Soap(SoapError::Xml(_))), "{error}");
    let error = answered(response("404 Not Found", "nothing here")).await;
    assert!(matches!(error, OnvifError::Status(status) if status.as_u16() == 404), "{error}");
    let bomb = r#"<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><b>&b;</b>"#;
    let error = answered(response("200 OK", bomb)).await;
    assert!(matches!(error, OnvifError::Soap(SoapError::Xml(_))), "{error}");
}

#[tokio::test]
async fn answers_without_end_are_not_read_to_it() {
    let lengthless = "HTTP/1.1 200 OK\r\n\r\n<a>";
    let error = answered(Answers::Endless(lengthless.into())).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Body)), "{error}");
    let of_a_terabyte = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n<a>";
    let error = answered(Answers::Endless(of_a_terabyte.into())).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Body)), "{error}");
    let error = answered(Answers::Endless("HTTP/1.1 200 OK\r\nX: ".into())).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Broken(_))), "{error}");
    let error = answered(Answers::Never).await;
    assert!(matches!(error, OnvifError::Http(HttpError::TimedOut)), "{error}");
}

#[tokio::test]
async fn nobody_is_there() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = looked(&Server { port, requests: Arc::default() }).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Unreachable(_))), "{error}");
}

#[tokio::test]
async fn redirections_are_not_followed() {
    let elsewhere = Server::start(response("200 OK", "")).await;
    let location = format!("307 Temporary Redirect\r\nLocation: http://127.0.0.1:{}/", elsewhere.port);
    let server = Server::start(response(&location, "")).await;
    let error = looked(&server).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Redirect(_))), "{error}");
    assert_eq!((server.requests(), elsewhere.requests()), (1, 0));
}

#[tokio::test]
async fn a_camera_that_asks_for_the_password_again_and_again_gets_one_answer() {
    let asks = |question: &str| response(&format!("401 Unauthorized\r\nWWW-Authenticate: {question}"), "");
    let server = Server::start(asks("Digest realm=\"a\", qop=\"auth\", nonce=\"b\", stale=true")).await;
    let error = looked(&server).await;
    assert!(matches!(error, OnvifError::Http(HttpError::Refused)), "{error}");
    assert_eq!(server.requests(), 2);
    // The password itself is never sent.
    for question in ["Basic realm=\"a\"", "Digest", "Digest realm=\"a", "NTLM", ",,,"] {
        let server = Server::start(asks(question)).await;
        let error = looked(&server).await;
        assert!(matches!(error, OnvifError::Http(HttpError::Challenge(_))), "{question}: {error}");
        assert_eq!(server.requests(), 1, "{question}");
    }
}
