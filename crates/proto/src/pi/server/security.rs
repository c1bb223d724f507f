//! Security words (RFC 2228, GFD.020, DCSC) on a channel that offers no security.
//!
//! What asks for what we have anyway (no protection, no data channel authentication) succeeds, since
//! clients say so unconditionally; everything else is refused so that nobody takes it for granted.

use super::ServerPi;

impl ServerPi {
    pub(super) fn run_security(&mut self, verb: &str, argument: &str) {
        let argument = argument.trim();
        match verb {
            "AUTH" => self.answer(
                504,
                "Unknown authentication type. : This server offers no AUTH.",
            ),
            "ADAT" => self.answer(
                503,
                "ADAT needs AUTH first, which this server does not offer.",
            ),
            "PBSZ" => match argument.parse::<u32>() {
                Ok(size) => self.answer(200, format!("PBSZ={size}")),
                Err(_) => self.answer(501, format!("Bad value for PBSZ: {argument}")),
            },
            "PROT" => self.run_prot(argument),
            "DCAU" => self.run_dcau(argument),
            "MIC" | "ENC" | "CONF" | "CCC" => self.answer(
                503,
                format!("{verb} needs AUTH first, which this server does not offer."),
            ),
            _ => self.answer(504, format!("{verb} is not offered by this server.")),
        }
    }

    fn run_prot(&mut self, argument: &str) {
        match argument.to_ascii_uppercase().as_str() {
            "C" => {
                self.drop_data_channel();
                self.answer(200, "Protection level set to C.");
            }
            level @ ("S" | "E" | "P") => {
                self.answer(536, format!("{level} protection level not supported."));
            }
            _ => self.answer(504, "Unknown protection level."),
        }
    }

    fn run_dcau(&mut self, argument: &str) {
        let (mode, subject) = argument.split_once(' ').unwrap_or((argument, ""));
        match mode.to_ascii_uppercase().as_str() {
            "N" => {
                self.drop_data_channel();
                self.answer(200, "DCAU N.");
            }
            "S" if subject.trim().is_empty() => self.answer(501, "DCAU S expected subject."),
            "A" | "S" | "T" => self.answer(
                504,
                "Bad DCAU mode. : This server offers no data channel authentication.",
            ),
            _ => self.answer(501, "Bad DCAU mode."),
        }
    }
}
