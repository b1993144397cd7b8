//! Questions to a camera as SOAP 1.2, and the content of its answers. Answers are not trusted: they are
//! parsed without DTDs and with a bound on their nodes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use roxmltree::{Document, Node, ParsingOptions};
use thiserror::Error;
use time::{Date, OffsetDateTime, PrimitiveDateTime, Time};

use crate::source::credentials::SourceCredentials;

const ENVELOPE: &str = "http://www.w3.org/2003/05/soap-envelope";
const DEVICE: &str = "http://www.onvif.org/ver10/device/wsdl";
const SCHEMA: &str = "http://www.onvif.org/ver10/schema";
const SECURITY: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const UTILITY: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
const PASSWORD_DIGEST: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest";
const BASE64: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";

/// The most elements and texts that are read of an answer.
const NODES_MAX: u32 = 20_000;
/// The most characters of a camera's own text that go into a message.
const WORDS_MAX: usize = 160;
/// The most profiles of a camera that are examined.
const PROFILES_MAX: usize = 32;

/// Why an answer cannot be used.
#[derive(Debug, Error)]
pub(super) enum SoapError {
    #[error("its answer is not valid XML ({0})")]
    Xml(roxmltree::Error),
    #[error("its answer has no {0}")]
    Lacks(&'static str),
    /// The camera's text, shortened and without control characters.
    #[error("it refused the request: {0}")]
    Fault(String),
}

/// The two ONVIF services for video. Only the newer one supports H.265.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    One,
    Two,
}

impl Media {
    /// Both services, the newer one first.
    pub(super) const ALL: [Self; 2] = [Self::Two, Self::One];

    fn namespace(self) -> &'static str {
        match self {
            Self::One => "http://www.onvif.org/ver10/media/wsdl",
            Self::Two => "http://www.onvif.org/ver20/media/wsdl",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::One => "Media",
            Self::Two => "Media2",
        }
    }
}

/// A question, as the body of an envelope.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question<'a> {
    /// The camera's clock. Cameras answer this to everybody.
    Clock,
    /// The camera's services and their addresses.
    Services,
    Profiles(Media),
    /// The address of a profile's video.
    StreamUri(Media, &'a str),
    /// A key frame, at once.
    KeyFrame(Media, &'a str),
}

impl Question<'_> {
    /// Whether cameras answer without credentials.
    pub(super) fn is_for_everybody(self) -> bool {
        matches!(self, Self::Clock)
    }

    fn body(self) -> String {
        match self {
            Self::Clock => format!(r#"<GetSystemDateAndTime xmlns="{DEVICE}"/>"#),
            Self::Services => format!(
                r#"<GetServices xmlns="{DEVICE}"><IncludeCapability>false</IncludeCapability></GetServices>"#
            ),
            Self::Profiles(media) => format!(r#"<GetProfiles xmlns="{}"/>"#, media.namespace()),
            Self::StreamUri(Media::One, profile) => format!(
                r#"<GetStreamUri xmlns="{}"><StreamSetup><Stream xmlns="{SCHEMA}">RTP-Unicast</Stream><Transport xmlns="{SCHEMA}"><Protocol>RTSP</Protocol></Transport></StreamSetup><ProfileToken>{}</ProfileToken></GetStreamUri>"#,
                Media::One.namespace(),
                escaped(profile)
            ),
            Self::StreamUri(Media::Two, profile) => format!(
                r#"<GetStreamUri xmlns="{}"><Protocol>RTSP</Protocol><ProfileToken>{}</ProfileToken></GetStreamUri>"#,
                Media::Two.namespace(),
                escaped(profile)
            ),
            Self::KeyFrame(media, profile) => format!(
                r#"<SetSynchronizationPoint xmlns="{}"><ProfileToken>{}</ProfileToken></SetSynchronizationPoint>"#,
                media.namespace(),
                escaped(profile)
            ),
        }
    }
}

/// Proof of the credentials without the password (WS-Security UsernameToken Profile 1.0).
pub(super) struct Token<'a> {
    pub(super) credentials: &'a SourceCredentials,
    pub(super) nonce: [u8; 16],
    /// By the camera's clock: cameras refuse tokens that are older than some seconds.
    pub(super) created: OffsetDateTime,
}

impl Token<'_> {
    fn header(&self) -> String {
        let created = timestamp(self.created);
        let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        [&self.nonce[..], created.as_bytes(), self.credentials.password().as_bytes()]
            .into_iter()
            .for_each(|part| digest.update(part));
        format!(
            r#"<s:Header><w:Security xmlns:w="{SECURITY}" s:mustUnderstand="true"><w:UsernameToken><w:Username>{}</w:Username><w:Password Type="{PASSWORD_DIGEST}">{}</w:Password><w:Nonce EncodingType="{BASE64}">{}</w:Nonce><u:Created xmlns:u="{UTILITY}">{created}</u:Created></w:UsernameToken></w:Security></s:Header>"#,
            escaped(self.credentials.user()),
            STANDARD.encode(digest.finish()),
            STANDARD.encode(self.nonce),
        )
    }
}

/// An envelope with a question, and with credentials if there are any.
pub(super) fn envelope(question: Question<'_>, token: Option<&Token<'_>>) -> String {
    let header = token.map(Token::header).unwrap_or_default();
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="{ENVELOPE}">{header}<s:Body>{}</s:Body></s:Envelope>"#,
        question.body()
    )
}

/// A UTC time in whole seconds, in the XML format.
fn timestamp(at: OffsetDateTime) -> String {
    let (date, time) = (at.date(), at.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Text with its XML special characters escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A parsed answer.
pub(super) struct Reply<'a>(Document<'a>);

impl<'a> Reply<'a> {
    /// Parses an answer. A SOAP fault is an error.
    pub(super) fn parse(text: &'a str) -> Result<Self, SoapError> {
        let options =
            ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(SoapError::Xml)?;
        match find(document.root(), ENVELOPE, "Fault") {
            Some(fault) => Err(SoapError::Fault(words_of(fault))),
            None => Ok(Self(document)),
        }
    }

    /// The camera's clock.
    pub(super) fn clock(&self) -> Result<OffsetDateTime, SoapError> {
        let utc = self.find(SCHEMA, "UTCDateTime").ok_or(SoapError::Lacks("UTCDateTime"))?;
        let number = |name| {
            let found = find(utc, SCHEMA, name)?;
            found.text()?.trim().parse::<i32>().ok()
        };
        let small = |name| u8::try_from(number(name)?).ok();
        let read = || {
            let month = small("Month")?.try_into().ok()?;
            let date = Date::from_calendar_date(number("Year")?, month, small("Day")?).ok()?;
            // The `time` crate has no leap seconds.
            let time = Time::from_hms(small("Hour")?, small("Minute")?, small("Second")?.min(59)).ok()?;
            Some(PrimitiveDateTime::new(date, time).assume_utc())
        };
        read().filter(|at| (1970..10_000).contains(&at.year())).ok_or(SoapError::Lacks("time that exists"))
    }

    /// The address of a video service, as the camera states it.
    pub(super) fn service(&self, media: Media) -> Option<String> {
        let services = self.0.descendants().filter(|node| node.has_tag_name((DEVICE, "Service")));
        let text = |service: Node<'_, '_>, name| find(service, DEVICE, name)?.text().map(str::to_owned);
        let mut found = services
            .filter(|service| text(*service, "Namespace").is_some_and(|is| is.trim() == media.namespace()));
        text(found.next()?, "XAddr")
    }

    /// The tokens of the camera's profiles.
    pub(super) fn profiles(&self, media: Media) -> Vec<String> {
        let profiles = self.0.descendants().filter(|node| node.has_tag_name((media.namespace(), "Profiles")));
        profiles.filter_map(|node| node.attribute("token")).map(str::to_owned).take(PROFILES_MAX).collect()
    }

    /// The address of a profile's video.
    pub(super) fn stream_uri(&self, media: Media) -> Result<String, SoapError> {
        let (within, namespace) = match media {
            Media::One => ("MediaUri", SCHEMA),
            Media::Two => ("GetStreamUriResponse", Media::Two.namespace()),
        };
        let lacks = SoapError::Lacks("address of a stream");
        let Some(within) = self.find(media.namespace(), within) else { return Err(lacks) };
        let text = find(within, namespace, "Uri").and_then(|uri| uri.text());
        text.map(|text| text.trim().to_owned()).ok_or(lacks)
    }

    /// Whether the camera confirms that it makes a key frame.
    pub(super) fn key_frame(&self, media: Media) -> Result<(), SoapError> {
        let said = self.find(media.namespace(), "SetSynchronizationPointResponse");
        said.map(drop).ok_or(SoapError::Lacks("SetSynchronizationPointResponse"))
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Node<'_, 'a>> {
        find(self.0.root(), namespace, name)
    }
}

/// The first descendant element with this name.
fn find<'a, 'd>(below: Node<'a, 'd>, namespace: &str, name: &str) -> Option<Node<'a, 'd>> {
    below.descendants().find(|node| node.has_tag_name((namespace, name)))
}

/// The text of a fault: its innermost code, and its reason.
fn words_of(fault: Node<'_, '_>) -> String {
    let texts = |name| {
        let found = fault.descendants().filter(move |node| node.has_tag_name((ENVELOPE, name)));
        found.filter_map(|node| node.text()).map(str::trim)
    };
    let code = texts("Value").next_back().unwrap_or("no code");
    let words: String = [code, texts("Text").next().unwrap_or_default()].join(" ");
    let words = words.trim().chars().filter(|c| !c.is_control());
    words.take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> SourceCredentials {
        SourceCredentials::parse("us<er:userpassword").unwrap()
    }

    /// The example of the ONVIF Application Programmer's Guide, 6.1.1.3.
    #[test]
    fn the_digest_is_the_one_of_the_guide() {
        let nonce = STANDARD.decode("LKqI6G/AikKCQrN0zqZFlg==").unwrap().try_into().unwrap();
        let created = OffsetDateTime::from_unix_timestamp(1_284_623_445).unwrap();
        let credentials = credentials();
        let sent = envelope(Question::Services, Some(&Token { credentials: &credentials, nonce, created }));
        assert!(sent.contains(">tuOSpGlFlIXsozq4HFNeeGeFLEI=<"), "{sent}");
        assert!(
            sent.contains(">2010-09-16T07:50:45Z<") && sent.contains(">LKqI6G/AikKCQrN0zqZFlg==<"),
            "{sent}"
        );
        assert!(sent.contains(">us&lt;er<") && !sent.contains("userpassword"), "{sent}");
        Document::parse(&sent).unwrap();
    }

    #[test]
    fn every_question_is_xml_whatever_the_profile_is_called() {
        let profile = "a&b<c>]]>\"";
        for media in Media::ALL {
            for question in [
                Question::Clock,
                Question::Services,
                Question::Profiles(media),
                Question::StreamUri(media, profile),
                Question::KeyFrame(media, profile),
            ] {
                let sent = envelope(question, None);
                let document = Document::parse(&sent).unwrap();
                let tokens = document.descendants().filter(|node| node.tag_name().name() == "ProfileToken");
                tokens.for_each(|node| assert_eq!(node.text(), Some(profile)));
            }
        }
    }

    fn enveloped(body: &str) -> String {
        format!(
            r#"<s:Envelope xmlns:s="{ENVELOPE}" xmlns:t="{SCHEMA}" xmlns:d="{DEVICE}"><s:Body>{body}</s:Body></s:Envelope>"#
        )
    }

    #[test]
    fn a_fault_is_told_in_few_words_of_the_camera() {
        let long = "x".repeat(9_000);
        let fault = enveloped(&format!(
            "<s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>ter:NotAuthorized</s:Value></s:Subcode></s:Code>\
             <s:Reason><s:Text>Sender\u{7f}\n{long}</s:Text></s:Reason></s:Fault>"
        ));
        let Err(SoapError::Fault(words)) = Reply::parse(&fault) else { panic!() };
        assert!(words.starts_with("ter:NotAuthorized Sender") && !words.contains('\u{7f}'), "{words}");
        assert_eq!(words.chars().count(), WORDS_MAX);
    }

    #[test]
    fn a_time_that_does_not_exist_is_no_time() {
        let clock = |date: &str| {
            let text = enveloped(&format!("<t:UTCDateTime>{date}</t:UTCDateTime>"));
            Reply::parse(&text).unwrap().clock().ok().map(timestamp)
        };
        let of = |year: &str, month: &str, hour: &str| {
            clock(&format!(
                "<t:Time><t:Hour>{hour}</t:Hour><t:Minute>5</t:Minute><t:Second>60</t:Second></t:Time>\
                 <t:Date><t:Year>{year}</t:Year><t:Month>{month}</t:Month><t:Day>7</t:Day></t:Date>"
            ))
        };
        assert_eq!(of("2026", "2", "3").as_deref(), Some("2026-02-07T03:05:59Z"));
        for (year, month, hour) in
            [("2026", "13", "3"), ("2026", "2", "24"), ("-5", "2", "3"), ("99999999999", "2", "3")]
        {
            assert_eq!(of(year, month, hour), None);
        }
        assert_eq!(clock(""), None);
    }

    #[test]
    fn bombs_are_refused() {
        let entities = r#"<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><b>&b;</b>"#;
        assert!(matches!(Reply::parse(entities), Err(SoapError::Xml(_))));
        let wide = enveloped(&"<a/>".repeat(30_000));
        assert!(matches!(Reply::parse(&wide), Err(SoapError::Xml(_))));
        let deep = format!("{}{}", "<a>".repeat(19_000), "</a>".repeat(19_000));
        // Read or refused, a deep document does not overflow the stack.
        let _ = Reply::parse(&deep).map(|reply| reply.profiles(Media::Two));
        for text in ["", "<", "\u{0}", "<a>", "<s:Envelope/>", "HTTP"] {
            assert!(matches!(Reply::parse(text), Err(SoapError::Xml(_))), "{text}");
        }
    }
}
