"""Classifiers of encoder-decoders (BART, T5), whose answer is read at a row's last end token.

The libraries' own way takes all end tokens of a batch at once, and fails on rows with unequal
numbers of them: a text that holds ``</s>`` would break its neighbours. Here each row's last one is
looked up by its place, which gives the same numbers. It needs torch, and changes no weights.
"""

from typing import Any


def suits(network: Any) -> bool:  # noqa: ANN401
    """Whether a network is a classifier of that kind."""
    ends = getattr(network.config, "is_encoder_decoder", False)
    return bool(ends) and hasattr(network, "classification_head")


def by_place(network: Any) -> Any:  # noqa: ANN401
    """The network with the same weights and answers, for any batch; call it by the same names."""
    import torch  # noqa: PLC0415

    class LastEnd(torch.nn.Module):
        """See the module."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:  # noqa: ANN401
            options: dict[str, Any] = {"attention_mask": attention_mask, "use_cache": False}
            if hasattr(network, "transformer"):  # T5's; that of BART shifts them itself
                options["decoder_input_ids"] = network._shift_right(input_ids)  # noqa: SLF001
            body = network.transformer if hasattr(network, "transformer") else network.model
            states = body(input_ids, **options)[0]
            # Padding may be end tokens too.
            ends = (input_ids == network.config.eos_token_id).to(torch.int64) * attention_mask
            places = torch.arange(input_ids.shape[1], device=input_ids.device)
            last = (ends * places).amax(dim=1)
            picked = states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1]))
            return {"logits": network.classification_head(picked[:, 0])}

    return LastEnd().eval()
