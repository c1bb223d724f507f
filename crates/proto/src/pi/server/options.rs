//! TYPE, MODE, TREV, OPTS, buffers, LANG: what shapes later transfers.

use std::time::Duration;

use crate::{
    command::{MarkerEvent, Mode, TypeCode},
    facts::FactSelection,
    opts::{Opts, RetrOptions},
};

use super::{ServerPi, session::RecursiveListing};

impl ServerPi {
    pub(super) fn run_type(&mut self, code: TypeCode) {
        self.session.type_code = code;
        self.answer(
            200,
            match code {
                TypeCode::Ascii => "Type set to A.",
                TypeCode::Image => "Type set to I.",
            },
        );
    }

    pub(super) fn run_mode(&mut self, mode: Mode) {
        if self.session.mode != mode && self.session.data_channel.is_cached() {
            // Connections that carried blocks cannot carry a bare stream. A channel not yet used is
            // kept, as GCT does.
            self.drop_data_channel();
        }
        self.session.mode = mode;
        self.answer(
            200,
            match mode {
                Mode::Stream => "Mode set to S.",
                Mode::ExtendedBlock => "Mode set to E.",
            },
        );
    }

    pub(super) fn run_trev(&mut self, event: MarkerEvent, seconds: u32) {
        let markers = &mut self.session.markers;
        match event {
            MarkerEvent::Restart => markers.restart = interval(seconds),
            MarkerEvent::Performance => markers.performance = interval(seconds),
        }
        self.answer(200, "Command Successful.");
    }

    pub(super) fn run_lang(&mut self, language: &str) {
        if language
            .get(..2)
            .is_some_and(|two| two.eq_ignore_ascii_case("EN"))
        {
            self.answer(200, "lang set to EN.");
        } else {
            self.answer(504, "Only EN is offered.");
        }
    }

    /// 0 gives the choice back to the kernel.
    pub(super) fn set_socket_buffer(&mut self, bytes: u64) {
        self.session.socket_buffer_bytes = (bytes > 0).then_some(bytes);
    }

    pub(super) fn run_opts(&mut self, opts: Opts) {
        match opts {
            Opts::Retr(options) => self.set_retr_options(&options),
            Opts::AllowDelayed(on) => self.session.delayed_passive = on,
            Opts::Mlst(selection) => {
                self.session.facts = FactSelection::parse(&selection);
                // RFC 3659 §7.9.
                let text = format!("MLST OPTS {}", self.session.facts.names());
                return self.answer(200, text.trim_end());
            }
            Opts::Mlsr {
                continue_on_error,
                follow_links,
            } => {
                self.session.recursive = RecursiveListing {
                    continue_on_error,
                    follow_links,
                };
            }
            Opts::Cksm { marker_seconds } => {
                self.session.markers.checksum = interval(marker_seconds);
            }
            Opts::Utf8(_) => {}
        }
        self.answer(200, "OPTS Command Successful.");
    }

    fn set_retr_options(&mut self, options: &RetrOptions) {
        let session = &mut self.session;
        if let Some(parallelism) = options.parallelism {
            session.parallelism = parallelism.start.clamp(1, self.config.channels_max.max(1));
        }
        if options.layout.is_some() {
            session.layout = options.layout;
        }
        if let Some(holes) = options.holes {
            session.holes = holes;
        }
        if let Some(seconds) = options.marker_seconds {
            session.markers.asked = interval(seconds);
        }
        if let Some(bytes) = options.window_bytes {
            self.set_socket_buffer(bytes);
        }
    }
}

fn interval(seconds: u32) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
