"""Paginators: all pages of a list, one request for each."""

import json

from botocore import rest_of


class Paginator:
    """Makes pages of one method's answers. `tokens` are where a page begins, `next_tokens` where the next one would."""

    def __init__(self, method, tokens, next_tokens, limit, results, common):
        self._method = method
        self._tokens, self._next, self._limit, self._results = tokens.split(), next_tokens.split(), limit, results.split()
        self._common = common.split()

    def paginate(self, **kwargs):
        """What to go through; `PaginationConfig` has `MaxItems`, `PageSize` and `StartingToken`."""
        given = kwargs.pop("PaginationConfig", {})
        most, size = given.get("MaxItems"), given.get("PageSize")
        if size is not None:
            kwargs[self._limit] = int(size)
        return PageIterator(self, None if most is None else int(most), given.get("StartingToken"), kwargs)

    def next_of(self, page):
        """Where the next page begins; nothing if this is the last."""
        if not page.get("IsTruncated", "IsTruncated" not in page):
            return {}
        found = {token: page.get(name) or None for token, name in zip(self._tokens, self._next, strict=True)}
        if found == {"Marker": None} and page.get("Contents"):
            found["Marker"] = page["Contents"][-1]["Key"]
        return found


class PageIterator:
    """Pages; each loop over it asks anew."""

    def __init__(self, paginator, most, start, kwargs):
        self._paginator, self._most, self._start, self._kwargs = paginator, most, start, kwargs
        self._token = None

    @property
    def result_keys(self):
        return self._paginator._results

    @property
    def resume_token(self):
        """Where to begin to see what `MaxItems` has cut off."""
        return self._token

    def _stop_at(self, where):
        from base64 import b64encode

        self._token = b64encode(json.dumps(where).encode()).decode()

    def _first(self):
        """Where to begin, and how many items of that page were seen."""
        if self._start is None:
            return {}, 0
        where = dict.fromkeys(self._paginator._tokens)
        from base64 import b64decode

        try:
            where = json.loads(b64decode(self._start).decode())
            return where, where.pop("boto_truncate_amount", 0)
        except (ValueError, TypeError, AttributeError):
            # Not one of ours: it is the service's own.
            return where | {self._paginator._tokens[0]: self._start}, 0

    def __iter__(self):
        paginator, kwargs = self._paginator, dict(self._kwargs)
        primary, *others = paginator._results
        where, skipped = self._first()
        previous, count = None, 0
        while True:
            for name, token in where.items():
                if token is not None and token != "None":
                    kwargs[name] = token
                else:
                    kwargs.pop(name, None)
            page = paginator._method(**kwargs)
            if previous is None and self._start is not None:
                page[primary] = page.get(primary, [])[skipped:] if primary in page else None
                page |= {name: [] if name in page else None for name in others}
            items = page.get(primary) or []
            over = count + len(items) - self._most if self._most is not None else 0
            if over > 0:
                page[primary] = items[: len(items) - over]
                self._stop_at(dict.fromkeys(paginator._tokens) | where | {"boto_truncate_amount": len(items) - over + skipped})
                yield page
                return
            skipped = 0
            yield page
            count += len(items)
            where = paginator.next_of(page)
            if not any(token is not None for token in where.values()):
                return
            if count == self._most:
                self._stop_at(where)
                return
            if where == previous:
                from botocore.exceptions import PaginationError

                raise PaginationError(message=f"The same next token was received twice: {where}")
            previous = where

    def build_full_result(self):
        """All pages' lists as one answer, with `NextToken` if something was cut off."""
        full = {}
        common = None
        for page in self:
            common = common or {name: page.get(name) for name in self._paginator._common}
            for name in self.result_keys:
                if page.get(name) is not None:
                    full[name] = full.get(name, []) + page[name]
        full |= common
        if self._token is not None:
            full["NextToken"] = self._token
        return full

    def search(self, expression):
        """What a JMESPath expression finds on each page."""
        try:
            import jmespath

            search = jmespath.compile(expression).search
        except ImportError:
            from botocore import _search

            search = _search.compiled(expression)
        for page in self:
            found = search(page)
            if isinstance(found, list):
                yield from found
            else:
                yield found


__getattr__ = rest_of(__name__)
