import torch
from sklearn.metrics.pairwise import cosine_similarity

from masil.methods import DCosine, Queries, Samples


def test_predictions_are_the_largest_cosine_to_a_class_mean(task) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(7).repeat(9)
    centres = torch.rand(7, 5, generator=generator)
    activations = centres[labels] + 0.2 * torch.rand(len(labels), 5, generator=generator)
    asked = centres[torch.arange(7).repeat(3)] + 0.2 * torch.rand(21, 5, generator=generator)
    method = DCosine()
    method.fit(Samples(activations[labels < 4], labels=labels[labels < 4]), task())
    method.learn(Samples(activations[labels >= 4], labels=labels[labels >= 4]))
    means = torch.stack([activations[labels == label].mean(0) for label in range(7)])
    cosines = cosine_similarity(asked, means)
    chosen = cosines[range(len(asked)), method.predict(Queries(asked)).numpy()]
    torch.testing.assert_close(torch.from_numpy(chosen), torch.from_numpy(cosines.max(1)), atol=1e-6, rtol=0)
