"""What must be in place before the first rental at Nebius, checked only by reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.nebius.account import NebiusAccount
from gpuwatch.providers.nebius.client import LIST_ADVICE, LIST_PUBLIC_IMAGES, PROVIDER, NebiusClient
from gpuwatch.providers.nebius.create import PUBLIC_KEY, OfferParts, parse_offer_id
from gpuwatch.providers.nebius.market import parse_advice
from gpuwatch.providers.toolkit.basic_launcher import public_key_prerequisite
from gpuwatch.providers.toolkit.post_processing import ParseResult


class NebiusPrerequisites:
    """The checks, in addition to the list of instances, which every provider has."""

    def __init__(self, client: NebiusClient, account: NebiusAccount, options: Mapping[str, Option]) -> None:
        self._client = client
        self._account = account
        self._options = options

    def check(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Return what is met and what is missing; a failed check is unknown. Raises nothing."""
        mend = f'add ssh_key = "ssh-ed25519 …", your public key, to [providers.{PROVIDER}.options]'
        found = [public_key_prerequisite(self._options.get("ssh_key"), PUBLIC_KEY, mend)]
        regions: dict[str, list[tuple[str, OfferParts]]] = {}
        for order in orders:
            if wanted := parse_offer_id(order.offer_id):
                regions.setdefault(wanted.region, []).append((order.offer_id, wanted))
        for region, parts_in_region in regions.items():
            ids = tuple(offer_id for offer_id, _ in parts_in_region)
            found += [run_check(region, ids) for run_check in (self._place, self._image)]
        return found + (self._quota(regions) if regions else [])

    def _place(self, region: str, ids: tuple[str, ...]) -> Prerequisite:
        result = partial(Prerequisite, place=region, offer_ids=ids)
        try:
            project = self._account.project(region)
            if project is None:
                text = "no project to rent in: there is none, or there are several and none is named default-…"
                mend = f'add "{region}=project-…" to options.projects'
                return result(name=PrerequisiteName.REGION, met=False, text=text, mend=mend)
            subnet = self._account.subnet(region, project)
        except ProviderError as error:
            return result(name=PrerequisiteName.REGION, met=None, text=str(error))
        if subnet is None:
            text = f"cannot tell which subnet of {project} to use"
            mend = f'add "{region}=vpcsubnet-…" to options.subnets'
            return result(name=PrerequisiteName.NETWORK, met=False, text=text, mend=mend)
        return result(name=PrerequisiteName.NETWORK, met=True, text=f"{project}, {subnet}")

    def _image(self, region: str, ids: tuple[str, ...]) -> Prerequisite:
        family = str(self._options.get("image"))
        result = partial(Prerequisite, name=PrerequisiteName.IMAGE, place=region, offer_ids=ids)
        try:
            images = self._client.pages(LIST_PUBLIC_IMAGES, kind="images", region=region)
        except ProviderError as error:
            return result(met=None, text=str(error))
        if any(image.spec.image_family == family for image in images):
            return result(met=True, text=f"the image family {family[:60]} exists")
        mend = "set options.image to a family of `nebius compute image list-public`"
        return result(met=False, text=f"there is no image family {family[:60]!r}", mend=mend)

    def _quota(self, regions: Mapping[str, Sequence[tuple[str, OfferParts]]]) -> list[Prerequisite]:
        """Check the quota by capacity advice, which is limited to it."""
        try:
            rows = self._client.pages(LIST_ADVICE, parent_id=self._account.tenant())
        except ProviderError as error:
            return [Prerequisite(name=PrerequisiteName.QUOTA, met=None, text=str(error))]
        stock = {one.offer_id: one for one in parse_advice(rows, ParseResult())}
        found = []
        for region, wanted in regions.items():
            for offer_id, parts in wanted:
                one = stock.get(f"{parts.platform}/{parts.preset}/{region}")
                is_used_up = one is not None and parts.spot in one.at_limit and not one.machines.get(parts.spot)
                text = f"{parts.platform} {parts.preset}: " + (
                    "the quota is used up" if is_used_up else "within the quota"
                )
                mend = "request a higher quota in the Nebius console, under Limits" if is_used_up else ""
                found.append(
                    Prerequisite(
                        name=PrerequisiteName.QUOTA,
                        met=None if one is None else not is_used_up,
                        text=text if one is not None else f"{parts.platform} {parts.preset}: not in capacity advice",
                        mend=mend,
                        place=region,
                        offer_ids=(offer_id,),
                    )
                )
        return found
