//! Real processes of the command, with the keys and the state of a folder. They end with the test.
#![allow(dead_code, reason = "every test uses another part")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The binary of this build.
pub const MEZ: &str = env!("CARGO_BIN_EXE_mez");

/// A process that ends with the test.
pub struct Running {
    pub child: Child,
    /// Its line that says it is ready.
    pub ready: String,
    /// The file of its log.
    pub log: PathBuf,
}

impl Running {
    /// A process that was not waited for, without a log file.
    pub fn unready(child: Child) -> Self {
        Self { child, ready: String::new(), log: PathBuf::new() }
    }

    /// Kills the process without warning, like a power cut.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The value after a name in the ready line.
    pub fn field(&self, name: &str) -> String {
        let field = self.ready.split(' ').find_map(|field| field.strip_prefix(name));
        field.unwrap_or_else(|| panic!("no {name} in {:?}", self.ready)).to_owned()
    }

    /// What it has logged so far.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command with the keys and the state of a folder, isolated from the user who runs the tests.
pub fn command(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(MEZ);
    command.args(args).current_dir(folder).env_clear().env("HOME", folder);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("MEZ_KEYS", folder.join("keys")).env("MEZ_STATE", folder.join("state"));
    command
}

/// Runs a command to its end.
pub fn run(args: &[&str], folder: &Path) -> Output {
    command(args, folder).output().unwrap()
}

/// Runs a command that must succeed, and returns its output.
pub fn done(args: &[&str], folder: &Path) -> String {
    let output = run(args, folder);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

/// Standard output, followed by standard error.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Starts a command, and waits until it is ready.
pub fn start(args: &[&str], folder: &Path) -> Running {
    started(&mut command(args, folder), args[0], folder)
}

/// Starts a prepared command, and waits until it is ready. Its log goes to a file with this name in the folder.
pub fn started(command: &mut Command, name: &str, folder: &Path) -> Running {
    let log = folder.join(format!("{name}.log"));
    let logged = File::create(&log).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(logged).spawn().unwrap();
    match BufReader::new(child.stdout.take().unwrap()).lines().next() {
        Some(Ok(ready)) => Running { child, ready, log },
        _ => panic!("{command:?} did not get ready: {}", fs::read_to_string(&log).unwrap()),
    }
}

/// Makes a video of two seconds in a folder, and returns its path.
pub fn video(folder: &Path) -> String {
    let path = folder.join("video.avi");
    let words = "-v error -f lavfi -i testsrc=size=160x120:rate=20 -t 2 -c:v mjpeg -y";
    let made = Command::new("ffmpeg").args(words.split(' ')).arg(&path).status();
    assert!(made.expect("ffmpeg is needed: apt-get install ffmpeg").success());
    path.display().to_string()
}
