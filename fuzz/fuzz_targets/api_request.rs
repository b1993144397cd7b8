#![no_main]
#![allow(missing_docs, reason = "documented where it is written: mez_fuzz::api_request")]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mez_fuzz::api_request(bytes));
