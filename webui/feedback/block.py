"""What a visitor may say about a vote, as markup: reasons, a thumb for each side, a comment. Pure.

The same block stands below the reveal and on the page of one's own battle. assets/feedback.js saves every change.
"""

from html import escape
from typing import get_args

from webui import sentences, texts
from webui.links import link_to
from wire.battles import SIDES, Outcome, Side
from wire.feedback import MAX_COMMENT_CHARS, GiveFeedback, Reason, Thumb
from wire.ids import BattleId


def feedback_path(battle_id: BattleId) -> str:
    """Where the page sends it."""
    return link_to(f"{texts.HISTORY_PATH}/{battle_id}/feedback")


def feedback_block(battle_id: BattleId, outcome: Outcome, said: GiveFeedback) -> str:
    """The block for a vote with this outcome; `said` is what the visitor has said before."""
    reasons = "".join(_reason(reason, outcome, is_given=reason in said.reasons) for reason in get_args(Reason))
    thumbs = "".join(_thumbs(side, said.thumbs.get(side)) for side in SIDES)
    words = "".join(f' data-{name}="{escape(text)}"' for name, text in texts.FEEDBACK_STATES.items())
    return (
        f'<div class="agon-feedback" data-feedback="{feedback_path(battle_id)}"{words}>'
        f"<details><summary>{escape(texts.FEEDBACK)} <small>{escape(texts.FEEDBACK_HINT)}</small></summary>"
        f'<div class="agon-feedback-body"><fieldset><legend class="agon-said">{escape(texts.FEEDBACK_REASONS)}</legend>'
        f"{reasons}</fieldset>{thumbs}"
        f'<label class="agon-comment"><span class="agon-said">{escape(texts.FEEDBACK_COMMENT)}</span>'
        f'<textarea rows="1" maxlength="{MAX_COMMENT_CHARS}" dir="auto" placeholder="{escape(texts.FEEDBACK_COMMENT)}">'
        f"\n{escape(said.comment or '')}</textarea></label></div></details>"  # markup drops the first line break
        '<p class="agon-feedback-state" role="status"></p></div>'
    )


def _reason(reason: Reason, outcome: Outcome, *, is_given: bool) -> str:
    checked = " checked" if is_given else ""
    return (
        f'<label class="agon-reason"><input type="checkbox" value="{reason}"{checked}>'
        f"<span>{escape(sentences.reason(reason, outcome))}</span></label>"
    )


def _thumbs(side: Side, given: Thumb | None) -> str:
    buttons = "".join(
        f'<button type="button" data-side="{side}" data-thumb="{thumb}" aria-pressed="{str(thumb == given).lower()}" '
        f'aria-label="{escape(name)}" title="{escape(name)}">{_THUMB}</button>'
        for thumb, name in ((thumb, sentences.thumb(side, thumb)) for thumb in get_args(Thumb))
    )
    return (
        f'<span class="agon-thumbs" role="group" aria-label="{escape(texts.ANSWER_OF_SIDE[side])}">'
        f'<b class="agon-of-{side}" aria-hidden="true">{texts.SIDE_NAME[side]}</b>{buttons}</span>'
    )


_THUMB = (
    '<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" '
    'stroke-width="1.6" stroke-linejoin="round"><path d="M3 9h3v8H3zM6 9.5 9.4 3c1.3 0 2 .8 2 2.1L10.9 8h4.6c1 0 1.7'
    ' .9 1.5 1.9l-1.1 5.6c-.2.9-.9 1.5-1.8 1.5H6"/></svg>'
)
