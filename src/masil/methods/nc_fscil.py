"""NC-FSCIL: class vectors fixed in advance as a simplex over all classes to come, embeddings drawn to them."""

from typing import final

from masil.methods.fine_tuned import FineTuned


@final
class NcFscil(FineTuned):
    """Row "NC + ETF loss" of MASIL's ablation. The original trains its backbone with this loss; here it is shared."""

    citation = (
        "Yang et al., Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot Class-Incremental "
        "Learning, ICLR 2023"
    )
    needs_total_classes = True
    loss = "dot-regression"
    framed = True
