//! Keys of pods with the certificate requests that they sign: of all types that the API knows.
//!
//! ring generates keys on the two smaller curves and Ed25519. RSA and P-521 come from the RustCrypto crates; rcgen cannot sign with
//! these, so their requests are put together here (RFC 2986).

use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use model::PodKeyType;
use p521::elliptic_curve::Generate;
use ports::certificates::{CertificateError, CertificateResult};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SignatureAlgorithm};
use rsa::pkcs1v15;
use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey};
use rsa::signature::{SignatureEncoding, Signer};
use sha2::Sha256;

/// AlgorithmIdentifier of sha256WithRSAEncryption: SEQUENCE of 1.2.840.113549.1.1.11 and NULL.
const SHA256_WITH_RSA: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];
/// AlgorithmIdentifier of ecdsa-with-SHA512: SEQUENCE of 1.2.840.10045.4.3.4.
const ECDSA_WITH_SHA512: [u8; 12] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// Of the attributes of a request.
const CONTEXT_0: u8 = 0xa0;

/// A key and its request, both DER.
pub(crate) struct SignedKey {
    /// PKCS#8 in version 1.
    pub(crate) key: Vec<u8>,
    /// PKCS#10 without subject and attributes.
    pub(crate) request: Vec<u8>,
}

/// Generates a key. One of RSA takes up to some seconds of a processor, the others some milliseconds.
///
/// # Errors
/// The libraries say none that should happen.
pub(crate) fn generate(kind: PodKeyType) -> CertificateResult<SignedKey> {
    match kind {
        PodKeyType::EcdsaP256 => by_ring(&rcgen::PKCS_ECDSA_P256_SHA256),
        PodKeyType::EcdsaP384 => by_ring(&rcgen::PKCS_ECDSA_P384_SHA384),
        PodKeyType::EcdsaP521 => p521(),
        PodKeyType::Ed25519 => {
            let signed = by_ring(&rcgen::PKCS_ED25519)?;
            Ok(SignedKey { key: ed25519_without_public_key(&signed.key)?, ..signed })
        }
        PodKeyType::Rsa3072 => rsa(3072),
        PodKeyType::Rsa4096 => rsa(4096),
    }
}

pub(crate) fn failed(what: &str, error: &dyn std::fmt::Display) -> CertificateError {
    CertificateError(format!("{what}: {error}"))
}

fn by_ring(algorithm: &'static SignatureAlgorithm) -> CertificateResult<SignedKey> {
    let key = KeyPair::generate_for(algorithm).map_err(|error| failed("failed to generate a key", &error))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key);
    let request = request.map_err(|error| failed("failed to create a signing request", &error))?;
    Ok(SignedKey { key: key.serialized_der().to_vec(), request: request.der().to_vec() })
}

fn rsa(bits: usize) -> CertificateResult<SignedKey> {
    let key = rsa::PrivateKey::new(&mut UnwrapErr(SysRng), bits);
    let key = key.map_err(|error| failed("failed to generate a key", &error))?;
    let (der, public) = encoded(&key, &key.to_public_key())?;
    let signer = pkcs1v15::SigningKey::<Sha256>::new(key);
    signed(der, &public, &SHA256_WITH_RSA, |info| signer.try_sign(info).map(|signature| signature.to_vec()))
}

fn p521() -> CertificateResult<SignedKey> {
    let key = p521::SecretKey::generate_from_rng(&mut UnwrapErr(SysRng));
    let (der, public) = encoded(&key, &key.public_key())?;
    let signer = p521::ecdsa::SigningKey::from(&key);
    signed(der, &public, &ECDSA_WITH_SHA512, |info| {
        let signature: p521::ecdsa::Signature = signer.try_sign(info)?;
        Ok(signature.to_der().as_bytes().to_vec())
    })
}

/// PKCS#8 of the private key, and SubjectPublicKeyInfo of the public one.
fn encoded(
    private: &impl EncodePrivateKey,
    public: &impl EncodePublicKey,
) -> CertificateResult<(Vec<u8>, Vec<u8>)> {
    let private = private.to_pkcs8_der().map_err(|error| failed("failed to encode a key", &error))?;
    let public =
        public.to_public_key_der().map_err(|error| failed("failed to encode a public key", &error))?;
    Ok((private.as_bytes().to_vec(), public.as_bytes().to_vec()))
}

fn signed(
    key: Vec<u8>,
    public: &[u8],
    algorithm: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, rsa::signature::Error>,
) -> CertificateResult<SignedKey> {
    let version = element(INTEGER, &[&[0]]);
    let no_subject = element(SEQUENCE, &[]);
    let no_attributes = element(CONTEXT_0, &[]);
    let info = element(SEQUENCE, &[&version, &no_subject, public, &no_attributes]);
    let signature = sign(&info).map_err(|error| failed("failed to sign a request", &error))?;
    // The first byte says how many bits of the last one are unused.
    let signature = element(BIT_STRING, &[&[0], &signature]);
    Ok(SignedKey { key, request: element(SEQUENCE, &[&info, algorithm, &signature]) })
}

/// An element of DER with these parts as its content.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let significant = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let length = length.get(significant..).unwrap_or_default();
    let mut element = vec![tag];
    if content.len() >= 0x80 {
        element.push(0x80 | u8::try_from(length.len()).unwrap_or(u8::MAX));
    }
    element.extend_from_slice(length);
    element.extend_from_slice(&content);
    element
}

/// PKCS#8 in version 1, as OpenSSL and Go write it. The public key that version 2 adds is more than old readers understand.
fn ed25519_without_public_key(pkcs8: &[u8]) -> CertificateResult<Vec<u8>> {
    // SEQUENCE, version 0, SEQUENCE of id-Ed25519, OCTET STRING of an OCTET STRING of 32 bytes.
    const HEAD: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    // The two versions differ in the length of the whole and in the version.
    match pkcs8.get(HEAD.len()..HEAD.len() + 32) {
        Some(seed) if pkcs8.get(5..HEAD.len()) == HEAD.get(5..) => Ok([&HEAD, seed].concat()),
        Some(_) | None => Err(CertificateError("unexpected form of an Ed25519 key".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    /// Whether the signature of the request is that of its own key, by a library that did not make it: ring, but for P-521, which it
    /// does not know.
    fn signature_is_valid(kind: PodKeyType, request: &X509CertificationRequest<'_>) -> bool {
        use p521::ecdsa::signature::Verifier;
        use ring::signature as by_ring;
        let info = request.certification_request_info.raw;
        let public = &request.certification_request_info.subject_pki.subject_public_key.data;
        let signature = &request.signature_value.data;
        let algorithm: &dyn by_ring::VerificationAlgorithm = match kind {
            PodKeyType::EcdsaP256 => &by_ring::ECDSA_P256_SHA256_ASN1,
            PodKeyType::EcdsaP384 => &by_ring::ECDSA_P384_SHA384_ASN1,
            PodKeyType::Ed25519 => &by_ring::ED25519,
            PodKeyType::Rsa3072 | PodKeyType::Rsa4096 => &by_ring::RSA_PKCS1_2048_8192_SHA256,
            PodKeyType::EcdsaP521 => {
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(public).unwrap();
                return key.verify(info, &p521::ecdsa::Signature::from_der(signature).unwrap()).is_ok();
            }
        };
        by_ring::UnparsedPublicKey::new(algorithm, public).verify(info, signature).is_ok()
    }

    #[test]
    fn pod_key_of_each_type_signs_a_request_without_subject_and_is_pkcs8_version_1() {
        // The algorithm of the signature, and the bytes of the public key.
        for (kind, algorithm, size) in [
            (PodKeyType::EcdsaP256, "1.2.840.10045.4.3.2", 65),
            (PodKeyType::EcdsaP384, "1.2.840.10045.4.3.3", 97),
            (PodKeyType::EcdsaP521, "1.2.840.10045.4.3.4", 133),
            (PodKeyType::Ed25519, "1.3.101.112", 32),
            (PodKeyType::Rsa3072, "1.2.840.113549.1.1.11", 398),
            (PodKeyType::Rsa4096, "1.2.840.113549.1.1.11", 526),
        ] {
            let SignedKey { key, request } = generate(kind).unwrap();
            let (rest, request) = X509CertificationRequest::from_der(&request).unwrap();
            assert!(rest.is_empty());
            assert_eq!(request.signature_algorithm.algorithm.to_id_string(), algorithm);
            assert_eq!(request.certification_request_info.subject.iter().count(), 0);
            assert!(request.certification_request_info.iter_attributes().next().is_none());
            assert!(signature_is_valid(kind, &request), "{kind:?}");
            let info = &request.certification_request_info.subject_pki;
            assert_eq!(info.subject_public_key.data.len(), size, "{kind:?}");
            assert_eq!(public_of(kind, &key), *info.subject_public_key.data, "{kind:?}");
            // After the tag of the whole and its length, which has more bytes from 128 on.
            let version = match key[1] {
                ..=0x7f => &key[2..5],
                0x81 => &key[3..6],
                _ => &key[4..7],
            };
            assert_eq!(version, [0x02, 0x01, 0x00], "{kind:?}");
        }
    }

    fn public_of(kind: PodKeyType, key: &[u8]) -> Vec<u8> {
        use p521::elliptic_curve::sec1::ToSec1Point;
        use p521::pkcs8::DecodePrivateKey;
        if kind == PodKeyType::EcdsaP521 {
            let key = p521::SecretKey::from_pkcs8_der(key).unwrap();
            return key.public_key().to_sec1_point(false).as_bytes().to_vec();
        }
        use rcgen::PublicKeyData as _;
        KeyPair::try_from(key).unwrap().der_bytes().to_vec()
    }

    #[test]
    fn lengths_of_elements_are_as_short_as_possible() {
        let head = |size: usize| element(SEQUENCE, &[&vec![7; size]])[..4.min(size + 2)].to_vec();
        assert_eq!(element(SEQUENCE, &[]), [0x30, 0]);
        assert_eq!(head(127), [0x30, 0x7f, 7, 7]);
        assert_eq!(head(128), [0x30, 0x81, 0x80, 7]);
        assert_eq!(head(256), [0x30, 0x82, 1, 0]);
    }
}
