"""The training workload: a DDPM on 32x32 images, in rungs that can be run, profiled and compared.

Reading order: ``unet.py`` (the network), ``diffusion.py`` (noising, loss, sampling),
``data.py`` and ``loaders.py`` (the images), ``train_step.py`` (the whole training loop on one
page), ``rungs.py`` (every optimisation as a named difference), ``ladder.py`` (all rungs timed
side by side). Importing this package, ``rungs`` or ``errors`` loads no torch.
"""
