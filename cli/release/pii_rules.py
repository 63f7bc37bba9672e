"""Patterns of personal data, each with the kind that replaces it. Pure.

Checked numbers (cards, IBANs, national ids) must pass their checksum, so that other numbers stay. What only a word
before it gives away (names, passports, passwords) is found after that word, in a few languages.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_PARTICLE = r"(?:de|da|van|von|der|den|di|la|le|al|bin|ibn|del|dos)"
_NAME = rf"[^\W\d_][\w'\u2019-]*(?:[ ](?:{_PARTICLE}[ ])*[^\W\d_a-z][\w'\u2019-]+){{0,3}}"
_CAPITAL = r"(?=[^\W\d_a-z])"
_RELATION = (
    r"(?:wife|husband|son|daughter|boss|mother|father|mom|dad|sister|brother|doctor|teacher|neighbou?r|friend"
    r"|colleague|girlfriend|boyfriend|ex|manager|landlord|client|patient|cousin|uncle|aunt|nephew|niece"
    r"|grandmother|grandfather|roommate|partner)"
)
_IS = (
    r"\.?\s*(?:is|are|was|ist|est|es|\xe9|e|=|:|#|-|no\.?|nr\.?|number|num\.?|nummer|num\xe9ro|n\xfamero)*\s*[:=#]?\s*"
)


@dataclass(frozen=True)
class Rule:
    """Finds data of one kind: group "data" of `pattern`, or all of it, where `is_valid` accepts it."""

    kind: str
    pattern: re.Pattern[str]
    is_valid: Callable[[str], bool] = lambda _: True


def _rule(kind: str, pattern: str, is_valid: Callable[[str], bool] = lambda _: True, flags: int = 0) -> Rule:
    return Rule(kind, re.compile(pattern, flags), is_valid)


def _ascii(kind: str, pattern: str, is_valid: Callable[[str], bool] = lambda _: True) -> Rule:
    """Numbers: they may stand next to letters of scripts without blanks."""
    return _rule(kind, pattern, is_valid, re.ASCII)


def _after(kind: str, words: str, data: str, is_valid: Callable[[str], bool] = lambda _: True) -> Rule:
    """Data that a word before it announces."""
    return _rule(kind, rf"(?i:(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z])){_IS}(?P<data>{data})", is_valid)


def _digits(text: str) -> list[int]:
    return [int(char) for char in text if char.isdecimal()]


def is_luhn(text: str) -> bool:
    """Whether the digits have a right Luhn checksum (payment cards, IMEI)."""
    digits = _digits(text)[::-1]
    doubled = [digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)]
    return len(set(digits)) > 1 and sum(doubled) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether the letters and digits have the checksum of an IBAN (ISO 7064, mod 97)."""
    code = re.sub(r"[\s-]", "", text).upper()
    moved = code[4:] + code[:4]
    return 15 <= len(code) <= 34 and int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def is_cpf(text: str) -> bool:
    """Whether the digits have the checksums of a Brazilian CPF."""
    digits = _digits(text)
    if len(digits) != 11 or len(set(digits)) == 1:
        return False
    for place in (9, 10):
        total = sum(digit * (place + 1 - index) for index, digit in enumerate(digits[:place]))
        if total * 10 % 11 % 10 != digits[place]:
            return False
    return True


def is_dni(text: str) -> bool:
    """Whether the letter of a Spanish DNI or NIE fits its number."""
    code = re.sub(r"[\s.-]", "", text).upper()
    number = code[:-1].translate(str.maketrans("XYZ", "012"))
    return number.isdecimal() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == code[-1]


def is_pesel(text: str) -> bool:
    """Whether the digits have the checksum of a Polish PESEL, and a month."""
    digits = _digits(text)
    total = sum(digit * weight for digit, weight in zip(digits, (1, 3, 7, 9) * 3, strict=False))
    return (
        len(digits) == 11
        and (10 - (total - digits[10]) % 10) % 10 == digits[10]
        and 1 <= digits[3] + 10 * (digits[2] % 2) <= 12
    )


def is_resident_id(text: str) -> bool:
    """Whether the last sign of a Chinese resident id fits the 17 digits before it (ISO 7064, mod 11-2)."""
    total = sum(int(digit) * pow(2, 17 - place, 11) for place, digit in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def is_address(text: str) -> bool:
    """Whether it is an internet address that belongs to a machine: not loopback, unspecified or for documents."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)


def _is_phone(text: str) -> bool:
    digits = _digits(text)
    is_date = re.fullmatch(r"\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4}", text.strip()) is not None
    return 8 <= len(digits) <= 15 and len(set(digits)) > 2 and not is_date


_STREET = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Square|Sq|Place|Pl|Terrace|Way|Close"
    r"|Crescent|Parkway|Pkwy|Highway|Hwy)"
)
_KEYS = (
    r"(?:sk|pk|rk)[-_](?:live|test|proj|ant|or)?[-_]?[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_\w{40,}|glpat-[\w-]{18,}|AKIA[A-Z0-9]{16}|ASIA[A-Z0-9]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|ya29\.[\w-]{20,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|pypi-[\w-]{30,}"
)

#: In the order in which they are applied: the longer and surer ones first.
RULES: Final[tuple[Rule, ...]] = (
    _rule("SECRET", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", flags=re.DOTALL),
    _rule("SECRET", rf"(?<![\w-])(?:{_KEYS})"),
    _rule("SECRET", r"(?<=://)(?P<data>[^\s/@:]+:[^\s/@]+)(?=@)"),
    _after(
        "SECRET",
        r"password|passwd|pwd|passphrase|passcode|passwort|kennwort|mot de passe|contrase\xf1a"
        r"|senha|wachtwoord|has\u0142o"
        r"|\u043f\u0430\u0440\u043e\u043b\u044c|api[ _-]?key|secret(?: key)?|access[ _-]?token"
        r"|bearer|pin(?: code)?|\u5bc6\u7801",
        r"(?!(?:is|the|a|an|for|to|and|or|of|in|must|should|reset|manager|field|hash|protected)\b)[^\s,;\"'`]*[\d!@$%^&*_][^\s,;\"'`]*",
    ),
    _rule(
        "EMAIL",
        r"(?<![\w.+-])[\w.+%-]+(?:@|\s?(?:\(at\)|\[at\])\s?)[\w-]+(?:\.[\w-]+|\s?(?:\(dot\)|\[dot\])\s?[\w-]+)+",
    ),
    _rule("EMAIL", r"(?<![\w.+%-])[\w.+%-]+ at [\w-]+(?: dot [\w-]+)+"),
    _ascii("IBAN", r"(?<!\w)(?:[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{2,4}){3,8}|[a-z]{2}\d{2}[a-z0-9]{11,30})(?!\w)", is_iban),
    _ascii("CARD", r"(?<![\w.])(?:\d[ -]?){12,18}\d(?![\w])", is_luhn),
    _ascii("WALLET", r"(?<!\w)(?:0x[0-9a-fA-F]{40}|bc1[a-z0-9]{25,60}|[13][1-9A-HJ-NP-Za-km-z]{26,34})(?!\w)"),
    _ascii("MAC", r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])"),
    _ascii("ADDRESS_IP", r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)", is_address),
    _ascii("ADDRESS_IP", r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:.])", is_address),
    _ascii("NATIONAL_ID", r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"),  # SSN
    _ascii("NATIONAL_ID", r"(?<!\w)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D](?!\w)"),  # NINO
    _ascii("NATIONAL_ID", r"(?<!\w)(?i:[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z])(?!\w)"),
    _ascii(
        "NATIONAL_ID", r"(?<!\w)[12] ?\d{2} ?(?:0[1-9]|1[0-2]) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}(?!\w)"
    ),  # INSEE
    _ascii("NATIONAL_ID", r"(?<!\w)(?:\d{8}|[XYZxyz]\d{7}|\d{2}\.\d{3}\.\d{3})-?[A-Za-z](?!\w)", is_dni),
    _ascii("NATIONAL_ID", r"(?<!\w)\d{3}\.\d{3}\.\d{3}-\d{2}(?!\w)", is_cpf),
    _ascii("NATIONAL_ID", r"(?<!\w)\d{11}(?!\w)", lambda text: is_cpf(text) or is_pesel(text)),
    _ascii("NATIONAL_ID", r"(?<!\w)\d{17}[\dXx](?!\w)", is_resident_id),  # Chinese resident id
    _after(
        "NATIONAL_ID",
        r"ssn|ni number|national insurance(?: number)?|social security|national id|id card|identity card"
        r"|passport|reisepass|passeport|pasaporte"
        r"|passaporto|driver'?s?"
        r" licen[cs]e|driving licen[cs]e|f\xfchrerschein|tax id|tin|steuer-?id|steuernummer|aadhaar|pan|bsn|insurance"
        r"|versicherungsnummer|personalausweis|medical record|mrn|patient id|nhs|dni|cpf|nif|pesel|inn|snils"
        r"|\u043f\u0430\u0441\u043f\u043e\u0440\u0442|\u8eab\u4efd\u8bc1",
        r"(?=[\w .\-/]*\d[\w .\-/]*\d)[A-Za-z0-9]{1,6}(?:[ .\-/]?[A-Za-z0-9]{2,}){0,5}",
        lambda text: sum(char.isdecimal() for char in text) >= 4,
    ),
    _after(
        "ACCOUNT",
        r"account|acct|routing|sort code|konto|kontonummer|compte|cuenta|conto|customer id|member id|employee id"
        r"|license plate|number plate|kennzeichen|imei|vin|booking reference|case",
        r"(?=[\w -]*\d[\w -]*\d)[A-Za-z0-9]{1,8}(?:[ -][A-Za-z0-9]{2,}){0,4}",
        lambda text: sum(char.isdecimal() for char in text) >= 3,
    ),
    _after(
        "PHONE",
        r"phone|tel|telephone|mobile|cell|fax|call me (?:at|on)|whatsapp|telefon|handy|t\xe9l|m\xf3vil",
        r"\(?[+\d][\d ().\-/]{5,}\d",
    ),
    _ascii("PHONE", r"(?<![\w+])\+\d{1,3}[ .\-]?(?:\(\d{1,4}\)[ .\-]?)?\d(?:[ .\-]?\d){6,12}(?![\w])", _is_phone),
    _ascii(
        "PHONE", r"(?<![\w.-])(?:\(\d{2,5}\)[ ]?\d{2,4}[ -]?\d{3,5}|\d{3}[-. ]\d{3}[-. ]\d{4})(?![\w-]|\.\d)", _is_phone
    ),
    _ascii("PHONE", r"(?<![\w.,-])0\d{1,5}[ /-]\d{1,4}(?:[ -]?\d{2,7}){1,4}(?![\w]|[.,]\d)", _is_phone),
    _ascii("PHONE", r"(?<!\d)1[3-9]\d{9}(?!\d)"),  # mobile numbers of China
    _rule("PLACE", r"(?<![\w.-])-?\d{1,2}\.\d{4,}\s?\xb0?\s?[NS]?,\s?-?\d{1,3}\.\d{4,}\s?\xb0?\s?[EW]?(?!\w)"),
    _rule(
        "PLACE",
        rf"(?<!\w)\d{{1,5}}[A-Za-z]?,? (?:[NSEW]\.? )?(?:[A-Z][\w'.-]+ ){{1,4}}{_STREET}\b\.?"
        r"(?:,? (?:Apt|Apartment|Suite|Unit|Flat|#)\.? ?\w+)?(?:,? [A-Z][\w. ]+?,? [A-Z]{2} \d{5}(?:-\d{4})?)?",
    ),
    _rule(
        "PLACE",
        r"\b[A-Z\xc4\xd6\xdc][\w\xdf.-]*(?:stra\xdfe|strasse|str\.|weg|gasse|platz|allee|straat"
        r"|laan|gatan|v\xe4gen)\s?\d{1,4}\s?[a-z]?\b"
        r"(?:,? \d{4,5} [A-Z\xc4\xd6\xdc]\w+)?",
    ),
    _rule(
        "PLACE",
        r"\b\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|place|chemin|all\xe9e|quai) (?:[\w'\u2019-]+ ?){1,5}"
        r"(?:, ?\d{5} [A-Z]\w+)?",
    ),
    _rule(
        "PLACE",
        r"\b(?:[Cc]alle|[Aa]venida|[Pp]laza|[Pp]aseo|[Vv]ia|[Vv]iale|[Rr]ua|[Cc]orso|[Pp]iazza"
        r"|ul\.|ulica|\u0443\u043b\.) (?:[\w.'-]+ ){1,4}?\d{1,4}\b",
    ),
    _rule("PLACE", r"(?<!\w)[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}(?!\w)"),  # postcodes of the United Kingdom
    _after(
        "BIRTH",
        r"date of birth|dob|born(?: on)?|birthday|geboren(?: am)?|geburtsdatum|geburtstag|n\xe9e? le|date de naissance"
        r"|anniversaire|nacid[oa](?: el)?|cumplea\xf1os|nascid[oa] em",
        r"(?:\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|(?:le |el |am |the )?\d{1,2}(?:st|nd|rd|th|\.)?"
        r" (?:of |de )?[^\W\d_]{3,}(?:,? (?:de )?\d{4})?|[A-Z][a-z]{2,} \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?)",
    ),
    _rule("HANDLE", r"(?:(?<=\S[ (\[,])|\A(?=@[\w.]+ ))@[A-Za-z_][\w.]{2,30}(?![\w@(])"),
    _after(
        "HANDLE",
        r"username|user name|login|my (?:instagram|twitter|telegram|discord|github|snapchat|skype"
        r"|reddit)(?: handle| name| id)?",
        r"@?[A-Za-z][\w.#-]{2,}",
    ),
    _rule(
        "HANDLE",
        r"(?:facebook|instagram|twitter|x|linkedin|t|github|tiktok|vk)\.(?:com|me)/(?:in/|@)?(?P<data>[A-Za-z0-9][\w.-]{2,})",
    ),
    _rule(
        "PERSON",
        rf"(?i:\b(?:my (?:full )?name is|my name's|i am called|call me|mein name ist|ich hei\xdfe"
        rf"|je m'appelle|mon nom est|me llamo|mi nombre es"
        rf"|mi chiamo|meu nome \xe9|me chamo|ik heet|mijn naam is|nazywam si\u0119|jag heter|\u043c\u0435\u043d\u044f"
        rf" \u0437\u043e\u0432\u0443\u0442))\s+{_CAPITAL}"
        rf"(?P<data>{_NAME})",
    ),
    _rule(
        "PERSON",
        r"(?:\u6211\u53eb|\u6211\u7684\u540d\u5b57\u662f)(?P<data>[\u4e00-\u9fff]{2,3})(?=[\uff0c\u3002,.\s]|$)",
    ),
    _rule(
        "PERSON",
        rf"\b(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Frau|Monsieur|Madame|Mme|Se\xf1or|Se\xf1ora|Sr|Sra|Signor"
        rf"|Signora)\.?\s{_CAPITAL}(?P<data>{_NAME})",
    ),
    _rule(
        "PERSON",
        rf"(?m)^\s*(?:Dear|Hi|Hello|Liebe|Lieber|Ch\xe8re?|Querid[oa]|Estimad[oa])\s+{_CAPITAL}"
        rf"(?P<data>(?!(?:Sir|Madam|All|Team|Everyone|Hiring|There|Customer|Friends?)\b){_NAME})\s*[,!:]",
    ),
    _rule(
        "PERSON",
        rf"(?im:^\s*(?:(?:best|kind|warm)? ?regards|sincerely|yours (?:truly|sincerely)|cheers|thanks"
        rf"|mit freundlichen gr\xfc\xdfen|cordialement|saludos)\s*,?)\s*\n+\s*{_CAPITAL}(?P<data>{_NAME})",
    ),
    _rule(
        "PERSON",
        rf"(?i:\b(?:my|our) {_RELATION}),?\s(?:is |named |called )?{_CAPITAL}(?P<data>{_NAME})",
    ),
    _rule("PERSON", rf"\b{_CAPITAL}(?P<data>{_NAME}), (?:my|our) {_RELATION}\b"),
    _rule("PERSON", r"(?P<data>[\u4e00-\u9fff]{1,4})(?=\u3055\u3093|\u69d8|\u6c0f|\u304f\u3093|\u3061\u3083\u3093)"),
    _rule("PERSON", r"(?P<data>[\u4e00-\u9fff]{1,3})(?=\u5148\u751f|\u5973\u58eb|\u5c0f\u59d0)"),
    _rule(
        "PERSON",
        rf"(?i:\b(?:full name|first name|last name|surname|patient(?: name)?|customer(?: name)?"
        rf"|contact(?: person)?|signed(?: by)?|cardholder|beneficiary|applicant|tenant|employee)\s*[:=])\s*{_CAPITAL}"
        rf"(?P<data>{_NAME})",
    ),
)
