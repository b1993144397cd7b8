//! An HTTP client over real TLS, and the validation of answers against `docs/schema/openapi.json`.

#![allow(dead_code, reason = "every test uses another part")]

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mez_node::identity::tls::{grpc_client_config, link_client_config};
use mez_node::identity::{Credentials, EDGE_SERVER_NAME, Role};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::api_support::within;

/// A browser or a tool, with its certificate and its headers.
#[derive(Clone)]
pub struct Browser {
    pub address: SocketAddr,
    config: Arc<ClientConfig>,
    pub headers: Vec<(&'static str, String)>,
}

/// An answer.
pub struct Got {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

impl Browser {
    /// A browser without a certificate.
    pub fn stranger(address: SocketAddr, of_site: &Credentials) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(of_site.authority()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        Self::with(address, config)
    }

    /// A browser with a certificate of the site.
    pub fn member(address: SocketAddr, credentials: &Credentials) -> Self {
        let config = match credentials.identity().role {
            Role::Camera => link_client_config(credentials),
            _ => grpc_client_config(credentials),
        };
        Self::with(address, config.unwrap())
    }

    fn with(address: SocketAddr, mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { address, config: Arc::new(config), headers: Vec::new() }
    }

    /// The same browser over HTTP/2.
    pub fn over_http2(&self) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// The same browser with another header in every request.
    pub fn sending(&self, name: &'static str, value: &str) -> Self {
        let mut browser = self.clone();
        browser.headers.push((name, value.into()));
        browser
    }

    /// Only makes the encrypted connection.
    pub async fn dial(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let name = EDGE_SERVER_NAME.try_into().unwrap();
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, TcpStream::connect(self.address).await?)
            .await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        let io = TokioIo::new(self.dial().await.unwrap());
        if self.is_http2() {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    }

    fn is_http2(&self) -> bool {
        self.config.alpn_protocols == [b"h2"]
    }

    pub async fn get(&self, path: &str) -> Got {
        self.ask(Method::GET, path, "").await
    }

    pub async fn ask(&self, method: Method, path: &str, body: &str) -> Got {
        let answer = within(self.begin(method, path, body)).await;
        let (parts, body) = answer.into_parts();
        let body = within(body.collect()).await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }

    /// The answer, whose body is still to be read.
    pub async fn begin(&self, method: Method, path: &str, body: &str) -> http::Response<Incoming> {
        let (host, request) = (self.address.to_string(), Request::builder().method(method));
        let mut request = match self.is_http2() {
            true => request.uri(format!("https://{host}{path}")),
            false => request.uri(path).header("host", host),
        };
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        self.send(request).await
    }
}

/// All deviations of a value from its schema, as one sentence each.
pub fn faults(value: &Value, schema: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(include_str!("../../../../docs/schema/openapi.json")).unwrap();
    let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{schema}") });
    let mut found = Vec::new();
    compare(&document, &schema, value, "$", &mut found);
    found
}

fn compare(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    if let Some(path) = schema["$ref"].as_str() {
        let target = document.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("{path}"));
        return compare(document, target, value, place, found);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = choices.iter().any(|choice| {
            let mut faults = Vec::new();
            compare(document, choice, value, place, &mut faults);
            faults.is_empty()
        });
        if !fits {
            found.push(format!("{place}: none of the choices fits {value}"));
        }
        return;
    }
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let fits = types.iter().any(|known| *known == is || (*known == "number" && is == "integer"));
    let is_known = schema["enum"].as_array().is_none_or(|known| known.contains(value));
    if !fits || !is_known {
        found.push(format!("{place}: {value} is not {schema}"));
        return;
    }
    for (place_of, item) in value.as_array().into_iter().flatten().enumerate() {
        compare(document, &schema["items"], item, &format!("{place}[{place_of}]"), found);
    }
    let Some(fields) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(required.as_str().unwrap()) {
            found.push(format!("{place}: {required} is missing"));
        }
    }
    for (name, field) in fields {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => compare(document, schema, field, &format!("{place}.{name}"), found),
            (None, Value::Object(_)) => {
                compare(document, &schema["additionalProperties"], field, &format!("{place}.{name}"), found);
            }
            (None, _) => found.push(format!("{place}: {name} is not described")),
        }
    }
}
