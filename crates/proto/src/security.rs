//! What guards data channels: DCAU (GFD.020) says who must be at their other end, PROT (RFC 2228
//! §3) what is done to their bytes.

use std::{fmt, str::FromStr};

use zeroize::Zeroizing;

/// The user of whom nothing is known but the bearer token that is given as password; announced by
/// [`TOKEN_FEATURE`]. See `docs/spec/tokens.md`.
pub const TOKEN_USER: &str = ":token:";

/// Line of FEAT: this server takes bearer tokens.
pub const TOKEN_FEATURE: &str = "X-GODWIT TOKEN";

/// PROT: what is done to the bytes of a data channel. Ordered by what it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protection {
    /// C: nothing.
    #[default]
    Clear,
    /// S: a change of them is noticed.
    Safe,
    /// E: only the two ends can read them.
    Confidential,
    /// P: both.
    Private,
}

impl Protection {
    /// Letter of PROT.
    pub fn letter(self) -> char {
        match self {
            Self::Clear => 'C',
            Self::Safe => 'S',
            Self::Confidential => 'E',
            Self::Private => 'P',
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// The text is no argument of PROT or DCAU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecurityArgument {
    /// The letter is none that is known.
    #[error("unknown letter")]
    Letter,
    /// DCAU S without whom to expect.
    #[error("a subject is missing")]
    Subject,
}

impl FromStr for Protection {
    type Err = BadSecurityArgument;
    /// A letter of either case, blanks around it allowed.
    fn from_str(text: &str) -> Result<Self, BadSecurityArgument> {
        match text.trim() {
            "C" | "c" => Ok(Self::Clear),
            "S" | "s" => Ok(Self::Safe),
            "E" | "e" => Ok(Self::Confidential),
            "P" | "p" => Ok(Self::Private),
            _ => Err(BadSecurityArgument::Letter),
        }
    }
}

/// The argument of ADAT or of DCSC: base64, the latter's with a key in it. `Debug` tells its length
/// only, and its memory is overwritten when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Takes the text as it is: what it holds is for others to say.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text, for people.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// DCAU: who must be at the other end of a data channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Dcau {
    /// N: any peer; there is no handshake.
    #[default]
    None,
    /// A: the identity that we prove ourselves.
    OwnIdentity,
    /// S: this subject, `/C=.../CN=...`.
    Subject(String),
}

impl Dcau {
    /// Letter of DCAU.
    pub fn letter(&self) -> char {
        match self {
            Self::None => 'N',
            Self::OwnIdentity => 'A',
            Self::Subject(_) => 'S',
        }
    }
}

impl fmt::Display for Dcau {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject(subject) => write!(f, "S {subject}"),
            _ => write!(f, "{}", self.letter()),
        }
    }
}

impl FromStr for Dcau {
    type Err = BadSecurityArgument;
    /// The argument of the command. `T` is another word for `A` (ARC).
    fn from_str(text: &str) -> Result<Self, BadSecurityArgument> {
        let text = text.trim();
        let (letter, subject) = text.split_once(' ').unwrap_or((text, ""));
        match letter {
            "N" | "n" => Ok(Self::None),
            "A" | "a" | "T" | "t" => Ok(Self::OwnIdentity),
            "S" | "s" => match subject.trim() {
                "" => Err(BadSecurityArgument::Subject),
                subject => Ok(Self::Subject(subject.to_owned())),
            },
            _ => Err(BadSecurityArgument::Letter),
        }
    }
}

/// What data channels must have at least. Ordered by what it demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MinProtection {
    /// Nothing.
    #[default]
    Clear,
    /// Both ends know each other: DCAU A or S.
    Identity,
    /// And a change of bytes is noticed: PROT S, E or P. (E is TLS here, which does both.)
    Integrity,
    /// And only the two ends can read them: PROT E or P.
    Private,
}

impl MinProtection {
    /// What is missing, if something is: the commands that give it.
    pub fn missing(self, dcau: &Dcau, protection: Protection) -> Option<&'static str> {
        match self {
            Self::Clear => None,
            _ if *dcau == Dcau::None => Some("DCAU A or S"),
            Self::Integrity if protection == Protection::Clear => Some("PROT S, E or P"),
            Self::Private if protection < Protection::Confidential => Some("PROT E or P"),
            Self::Identity | Self::Integrity | Self::Private => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_are_written() {
        for level in [
            Protection::Clear,
            Protection::Safe,
            Protection::Confidential,
            Protection::Private,
        ] {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(level.to_string().to_lowercase().parse(), Ok(level));
        }
        for dcau in [
            Dcau::None,
            Dcau::OwnIdentity,
            Dcau::Subject("/O=Grid/CN=Jo Doe".to_owned()),
        ] {
            assert_eq!(dcau.to_string().parse(), Ok(dcau));
        }
        assert_eq!(" t ".parse(), Ok(Dcau::OwnIdentity));
        assert_eq!(
            "S  ".parse::<Dcau>(),
            Err(BadSecurityArgument::Subject),
            "whom?"
        );
        for text in ["", "X", "AA", "N A B"] {
            let expected = match text {
                "N A B" => Ok(Dcau::None),
                _ => Err(BadSecurityArgument::Letter),
            };
            assert_eq!(text.parse::<Dcau>(), expected, "{text}");
        }
        assert_eq!(format!("{:?}", Token::new("c2VjcmV0")), "Token(8 bytes)");
        assert_eq!("CS".parse::<Protection>(), Err(BadSecurityArgument::Letter));
        assert!(Protection::Private > Protection::Safe && Protection::Safe > Protection::Clear);
    }

    #[test]
    fn a_floor_names_what_is_missing() {
        use Protection::*;
        for (min_protection, dcau, level, missing) in [
            (MinProtection::Clear, Dcau::None, Clear, None),
            (
                MinProtection::Identity,
                Dcau::None,
                Private,
                Some("DCAU A or S"),
            ),
            (MinProtection::Identity, Dcau::OwnIdentity, Clear, None),
            (
                MinProtection::Integrity,
                Dcau::OwnIdentity,
                Clear,
                Some("PROT S, E or P"),
            ),
            (MinProtection::Integrity, Dcau::OwnIdentity, Safe, None),
            (
                MinProtection::Private,
                Dcau::OwnIdentity,
                Safe,
                Some("PROT E or P"),
            ),
            (
                MinProtection::Private,
                Dcau::None,
                Private,
                Some("DCAU A or S"),
            ),
            (
                MinProtection::Private,
                Dcau::OwnIdentity,
                Confidential,
                None,
            ),
            (MinProtection::Private, Dcau::OwnIdentity, Private, None),
        ] {
            assert_eq!(
                min_protection.missing(&dcau, level),
                missing,
                "{min_protection:?} {dcau} {level}"
            );
        }
    }
}
