"""LoRA adapters: from a PEFT folder to matrices beside those of a loaded model."""

from engine.adapters.rack import AdapterRack

__all__ = ["AdapterRack"]
